"""Model servers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from support.model_server import ModelServer, model_server

SIM = ("--engine", "sim", "--model", "random:tiny", "--sim-step-ms", "5", "--sim-prefill-ms", "5,0")


@pytest.fixture(scope="session")
def torch_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """The tiny model, computed, three slots."""
    folder = tmp_path_factory.mktemp("torch-server")
    with model_server(folder, "--model", "random:tiny", "--slots", "3") as server:
        yield server.wait_ready()


@pytest.fixture(scope="session")
def sim_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    """A simulated engine: 5 ms a step and a prefill, two slots."""
    folder = tmp_path_factory.mktemp("sim-server")
    with model_server(folder, *SIM, "--slots", "2", "--body-timeout-seconds", "0.5") as server:
        yield server.wait_ready()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    """A client without a limit on connections."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


@pytest.fixture
def sim_options() -> tuple[str, ...]:
    """The options of the simulated engine, for tests that start their own server."""
    return SIM


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `save_pretrained` writes it, with byte-level tokenizer files."""
    from punctual_model_server.engine.models import Architecture  # noqa: PLC0415 - torch is slow
    from punctual_model_server.engine.weights import build_random  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("weights") / "my-gpt2"
    architecture = Architecture(2, 32, 2, 260, positions=128, initializer_range=0.3)
    build_random(architecture, seed=7).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """Write a vocabulary of the 256 byte characters, two merges and an end token."""
    import json  # noqa: PLC0415

    from punctual_model_server.tokenizer import _alphabet  # noqa: PLC0415

    tokens = [*_alphabet(), "th", "the", "in", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({text: i for i, text in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e\ni n\n")
