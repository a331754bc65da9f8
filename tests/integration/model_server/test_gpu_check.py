"""The GPU check: its parts on a CPU runner, and what it says without a GPU."""

from __future__ import annotations

import pytest
import torch

from punctual_model_server import gpu_check
from punctual_model_server.engine.models import RANDOM
from punctual_model_server.engine.torch_runner import TorchRunner
from punctual_model_server.engine.weights import build_random

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def runner() -> TorchRunner:
    torch.set_num_threads(1)
    return TorchRunner(build_random(RANDOM["random:tiny"]), 4, max_context=256)


def test_without_a_gpu_it_says_so_and_exits_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert "no CUDA GPU" in capsys.readouterr().err


def test_the_report_is_complete(runner: TorchRunner) -> None:
    report = {
        "device": "cpu",
        "torch": torch.__version__,
        "model": "random:tiny",
        "capture_seconds": 0.0,
        "seconds": 0.0,
        "prefill_ms": gpu_check.time_prefills(runner, (4, 64)),
        "linearity": gpu_check.check_linearity(runner, count=6),
        "forecast": gpu_check.check_forecast(runner, slots=4, count=8),
        "equality_fp32": gpu_check.check_equality(runner, runner.model, count=4),
        "eager_step_ms": {"128": dict.fromkeys(map(str, gpu_check.SIZES), 1.0)},
        "graph_step_ms": {"128": dict.fromkeys(map(str, gpu_check.SIZES), 1.0)},
    }
    assert report["equality_fp32"] == {"requests": 4, "equal": 4}
    text = gpu_check.render(report)
    assert "eager   128" in text
    assert "median_error" in text


def test_step_times_are_there_for_each_window_and_size(runner: TorchRunner) -> None:
    times = gpu_check.time_steps(runner, (1, 4), (64, 256))
    assert {window: set(sizes) for window, sizes in times.items()} == {
        "64": {"1", "4"},
        "256": {"1", "4"},
    }
    assert all(ms > 0 for sizes in times.values() for ms in sizes.values())
