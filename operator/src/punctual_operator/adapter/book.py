"""What is known of one policy's demand, out of replicas that come, go, and do not always answer.

Rules, so that a hole in the data never looks like a lower load:
- Every ready replica has answered of late: their values are joined, and remembered as complete.
- One has not, or has just begun and knows nothing yet: the larger of what the others say and the
  last complete value, for a bounded time; after that a rate is what the others say, scaled up to
  the number of replicas.
- Nobody knows anything: unknown. Never zero.
- A replica that has gone counts less and less over one window, while its clients arrive at others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from punctual_operator.adapter.series import Joining, Series, Signals, join

WINDOW = "window_seconds"
"""The member of a gateway's signals that tells its window."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds."""

    fresh: float = 15.0
    """A value older than this is one that the replica does not know any more."""
    hold: float | None = None
    """How long the last complete value stands in for what is missing; None: two windows."""
    window: float = 60.0
    """The gateways' window, where none of them has told it yet."""


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A value and its age in seconds."""

    value: float
    age: float


@dataclasses.dataclass(slots=True)
class _Replica:
    signals: Signals
    """Empty: it answers, but its first window has not passed."""
    at: float


class Book:
    """The readings of one policy's gateway; times are monotonic seconds."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.window = limits.window
        """Seconds within which a new replica knows its load, as the gateways tell it."""
        self._ready: set[str] = set()
        self._replicas: dict[str, _Replica] = {}
        self._gone: dict[str, tuple[_Replica, float]] = {}
        self._complete: dict[str, Value] = {}
        """Value and time (as `age`) of the last complete reading, by metric."""

    def set_replicas(self, names: Iterable[str], now: float) -> None:
        """These replicas are ready; what others said fades."""
        self._ready = set(names)
        for name in self._replicas.keys() - self._ready:
            self._gone[name] = self._replicas.pop(name), now
        for name in self._ready & self._gone.keys():
            self._replicas[name], _ = self._gone.pop(name)
        self._gone = {name: one for name, one in self._gone.items() if now - one[1] < self.window}

    def record(self, name: str, signals: Signals, now: float) -> None:
        """A replica has answered; `signals` is empty within its first window."""
        self._replicas[name] = _Replica(signals, now)
        self.window = signals.get(WINDOW) or self.window

    @property
    def hold(self) -> float:
        """How long the last complete value stands in: until a successor's first window is over."""
        return 2 * self.window if self._limits.hold is None else self._limits.hold

    def silent(self, now: float) -> int:
        """How many ready replicas have not answered of late."""
        limit = self._limits.fresh
        known = self._replicas
        return sum(name not in known or now - known[name].at > limit for name in self._ready)

    def note(self, series: Series, now: float) -> None:
        """Remember the value if it is complete; call it after each round of questions."""
        known, missing = self._split(series, now)
        if known and not missing:
            value = join(series, self._parts(known, now))
            if value is not None:
                self._complete[series.name] = Value(value, now)

    def read(self, series: Series, now: float) -> Value | None:
        """The value now, or None where it is not known."""
        known, missing = self._split(series, now)
        value = join(series, self._parts(known, now)) if known else None
        age = max((now - one.at for one in known), default=0.0)
        if value is not None and not missing:
            return Value(value, age)
        last = self._complete.get(series.name)
        if last is not None and now - last.age <= self.hold:
            return Value(max(last.value, value or 0.0), now - last.age)
        if value is None:
            return None
        if series.joining is Joining.SUM:
            value *= (len(known) + missing) / len(known)
        return Value(value, age)

    def _split(self, series: Series, now: float) -> tuple[list[_Replica], int]:
        """The replicas that know the metric, and how many do not."""
        known = [
            replica
            for name in self._ready
            if (replica := self._replicas.get(name)) is not None
            and now - replica.at <= self._limits.fresh
            and series.signal in replica.signals
        ]
        return known, len(self._ready) - len(known)

    def _parts(self, known: list[_Replica], now: float) -> list[tuple[Signals, float]]:
        parts: list[tuple[Signals, float]] = [(one.signals, 1.0) for one in known]
        for replica, since in self._gone.values():
            parts.append((replica.signals, max(1 - (now - since) / self.window, 0.0)))
        return parts
