"""When a refused client is told to come back."""

from __future__ import annotations

import pytest

from punctual_admission.outcomes import Reason
from punctual_admission.retry_after import LONGEST, SHORTEST, header_seconds, retry_delay
from punctual_admission.ticket import Prediction


def prediction(wait: float = 3.0, budget: float = 2.0) -> Prediction:
    """A request of 1 s behind `wait` seconds of queue."""
    return Prediction(wait, 1.0, 1.0, budget, 0.0, wait, 1, 5, 1)


def test_an_unreachable_deadline_is_retried_when_the_backlog_has_shrunk() -> None:
    """3 s of wait and 1 s of service miss 2 s by 2 s."""
    assert retry_delay(Reason.DEADLINE_UNREACHABLE, prediction(), 0.1, 0.0) == pytest.approx(2.0)


def test_a_full_queue_is_retried_when_the_next_place_falls_free() -> None:
    """The running request ends in 0.7 s."""
    assert retry_delay(Reason.QUEUE_FULL, prediction(), 0.7, 0.0) == pytest.approx(0.7)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_bounded_delay(reason: Reason) -> None:
    """Between 50 ms and a minute whatever the numbers."""
    for wait, free in ((0.0, 0.0), (1e6, 1e6), (0.0, float("inf"))):
        delay = retry_delay(reason, prediction(wait), free, 0.999)
        assert SHORTEST <= delay <= LONGEST


def test_clients_refused_together_are_spread() -> None:
    """Jitter adds up to half."""
    delays = [
        retry_delay(Reason.DEADLINE_UNREACHABLE, prediction(), 0.0, uniform)
        for uniform in (0.0, 0.5, 0.999)
    ]
    assert delays == pytest.approx([2.0, 2.5, 3.0], rel=0.01)


@pytest.mark.parametrize(("delay", "header"), [(0.05, 1), (1.0, 1), (1.01, 2), (60.0, 60)])
def test_the_header_has_whole_seconds_from_1_to_60(delay: float, header: int) -> None:
    """Rounded up, never 0."""
    assert header_seconds(delay) == header
