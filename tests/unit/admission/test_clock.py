"""The clocks."""

from __future__ import annotations

import pytest

from punctual_admission.clock import Clock, ManualClock, MonotonicClock


def test_the_monotonic_clock_never_goes_back() -> None:
    """Two readings in order."""
    clock: Clock = MonotonicClock()
    first = clock.now()
    assert clock.now() >= first


def test_the_manual_clock_moves_only_forward() -> None:
    """Virtual time refuses to go back."""
    clock = ManualClock(5.0)
    clock.advance_to(7.0)
    assert clock.now() == 7.0
    with pytest.raises(ValueError, match=r"at or after 7.0, got 6.0"):
        clock.advance_to(6.0)
