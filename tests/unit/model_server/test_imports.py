"""What each process loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

LISTING = "import sys, {module}; print(*sys.modules)"


def loaded_by(module: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", LISTING.format(module=module)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return {name.split(".")[0] for name in result.stdout.split()}


def test_the_front_process_loads_no_torch() -> None:
    loaded = loaded_by("punctual_model_server.server")
    assert "aiohttp" in loaded
    assert not loaded & {"torch", "transformers", "numpy", "safetensors"}


@pytest.mark.parametrize(
    "module", ["punctual_model_server.main", "punctual_model_server.engine.process"]
)
def test_a_simulated_engine_process_loads_the_standard_library_only(module: str) -> None:
    loaded = loaded_by(module)
    assert not loaded & {"torch", "transformers", "aiohttp", "uvloop", "orjson", "tokenizers"}
