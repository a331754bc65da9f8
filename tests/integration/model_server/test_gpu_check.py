"""The GPU check: its parts on a CPU runner, and what it says without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

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


def test_the_report_on_a_cpu_is_complete_and_its_answers_are_equal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    assert gpu_check.main(["--cpu", "--model", "random:tiny", "--json", str(path)]) == 0
    report = json.loads(path.read_text())
    assert report["equality_fp32"] == {"requests": 8, "equal": 8}
    assert len(report["forecast"]["step_ms"]) == 4
    out = capsys.readouterr().out
    assert "eager step ms,  128 positions  B=1:" in out
    assert json.loads(out.strip().splitlines()[-1]) == report


def test_the_linear_fit_has_its_figures(runner: TorchRunner) -> None:
    fit = gpu_check.check_linearity(runner, count=6, longest=20)
    assert set(fit) == {
        "base_ms",
        "new_token_ms",
        "prompt_token_ms",
        "median_error",
        "worst_error",
    }


def test_step_times_are_there_for_each_window_and_size(runner: TorchRunner) -> None:
    times = gpu_check.time_steps(runner, (1, 4), (64, 256))
    assert {window: set(sizes) for window, sizes in times.items()} == {
        "64": {"1", "4"},
        "256": {"1", "4"},
    }
    assert all(ms > 0 for sizes in times.values() for ms in sizes.values())
