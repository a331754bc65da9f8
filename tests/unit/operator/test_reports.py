"""Reading what a gateway says about itself."""

from __future__ import annotations

from typing import Any

import pytest

from punctual_operator.reports import read_report

POD = {
    "url": "http://10.0.0.1:8000",
    "state": "ready",
    "available": True,
    "problem": None,
    "model": "gpt2",
    "slots": 2,
    "speed_ratio": 1.25,
    "step_seconds": [0.01, 0.012],
    "prefill_seconds": {"base": 0.02, "per_token": 0.001},
}


def stats(**changes: Any) -> dict[str, Any]:
    base = {
        "policy": {"generation": 4, "problems": []},
        "pods": [POD],
        "signals": {"offered_load_long": 0.5},
    }
    return base | changes


def test_report_is_read() -> None:
    report = read_report(stats())
    assert (report.generation, report.problems, report.offered_load) == (4, (), 0.5)
    pod = report.pods[0]
    assert (pod.usable, pod.model, pod.ratio, pod.step_seconds) == (
        True,
        "gpt2",
        1.25,
        (0.01, 0.012),
    )
    assert read_report(stats(signals=None)).offered_load is None


def test_pod_that_said_nothing_yet_has_no_numbers() -> None:
    bare = {
        "url": "http://10.0.0.1:8000",
        "available": False,
        "problem": "no connection",
        "model": None,
    }
    pod = read_report(stats(pods=[bare])).pods[0]
    assert (pod.usable, pod.problem, pod.model, pod.step_seconds) == (
        False,
        "no connection",
        "",
        (),
    )


@pytest.mark.parametrize(
    "given", [{}, {"policy": {}}, {"policy": {"generation": "4"}}, {"policy": []}]
)
def test_something_else_is_no_report(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="generation"):
        read_report(given)
