"""Time, handed in from outside.

Every time in this package is a float of monotonic seconds. Only differences mean anything, so the
wall clock may jump without an effect on a decision.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Anything that tells monotonic seconds."""

    def now(self) -> float:
        """Monotonic seconds; never decreases."""
        ...


class MonotonicClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Monotonic seconds since an arbitrary start."""
        return time.monotonic()


class ManualClock:
    """Virtual time: stands still until it is moved."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Virtual seconds."""
        return self._now

    def advance_to(self, when: float) -> None:
        """Move to `when`; raises ValueError when that lies in the past."""
        if when < self._now:
            raise ValueError(f"when must be at or after {self._now}, got {when}")
        self._now = when
