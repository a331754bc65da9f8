"""The arithmetic of a calibration."""

from __future__ import annotations

import pytest

from punctual_lab.commands.calibrate import build_json, build_rows, describe_errors
from punctual_lab.load.calibration import (
    build_lengths,
    count_steps,
    judge_model,
    shared_gaps,
    summarise_errors,
)
from punctual_lab.measures import Line

PREFILL = Line(0.008, 0.0001)
STEPS = {1: 0.009, 2: 0.012}


def exact_total(prompt: int, tokens: int) -> float:
    """Return what the model itself says."""
    return PREFILL.at(prompt) + (tokens - 1) * STEPS[1]


def test_only_gaps_while_all_streams_run_count() -> None:
    """Gaps before the last stream has begun and after the first has ended are left out."""
    streams = [[0.0, 1.0, 2.0, 3.0], [1.5, 2.5, 3.5, 9.0]]
    assert shared_gaps(streams) == pytest.approx([1.0, 1.0])
    assert shared_gaps([[0.0, 0.5]]) == [0.5]


def test_requests_that_follow_the_model_have_no_error() -> None:
    """The model's error is measured against prefill(P) + (n - 1) T(1)."""
    lengths = build_lengths(12, seed=1)
    totals = [exact_total(prompt, tokens) for prompt, tokens in lengths]
    found = judge_model(PREFILL, STEPS, lengths, totals)
    assert max(found.model_errors) == pytest.approx(0.0, abs=1e-9)
    assert found.line.slope == pytest.approx(STEPS[1], rel=0.1)
    assert len(found.line_errors) == 6
    slower = judge_model(PREFILL, STEPS, lengths, [2 * total for total in totals])
    assert summarise_errors(slower.model_errors)["median"] == pytest.approx(0.5)


def test_lengths_are_reproducible_and_in_range() -> None:
    """The same seed gives the same requests."""
    lengths = build_lengths(50, seed=3)
    assert lengths == build_lengths(50, seed=3)
    assert all(8 <= prompt <= 64 and 2 <= tokens <= 96 for prompt, tokens in lengths)


def test_measured_stands_beside_published() -> None:
    """A server without /v1/capacity has dashes, one with it differences."""
    lengths = build_lengths(8, seed=1)
    found = judge_model(PREFILL, STEPS, lengths, [exact_total(*pair) for pair in lengths])
    assert all(row[2:] == ["-", "-"] for row in build_rows(found, {}))
    published = {
        "prefill_seconds": {"base": 0.004, "per_token": 0.0},
        "step_seconds": [0.009],
    }
    rows = build_rows(found, published)
    assert rows[0] == ["prefill, base", "8.000", "4.000", "+100.0%"]
    assert rows[2] == ["step T(1)", "9.000", "9.000", "+0.0%"]
    assert rows[3][2] == "-"
    assert len(describe_errors(found)) == 2
    assert build_json(found)["step_seconds"] == {"1": 0.009, "2": 0.012}


def test_steps_of_a_run_are_known_beforehand() -> None:
    """The progress bar's total is the number of measurements."""
    assert count_steps([1, 2], repeats=3, requests=10) == 3 * (4 + 2) + 10
