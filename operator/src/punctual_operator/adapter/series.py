"""The metrics that are served, and how those of several gateway replicas make one.

The autoscaler adds up the items that it gets, which is right for rates and wrong for waits and
shares; so each policy has one item, put together here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import StrEnum


class Joining(StrEnum):
    """How the values of the replicas become one."""

    SUM = "sum"
    WORST = "worst"
    WEIGHTED = "weighted"
    """Mean by arrivals."""


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """A metric: its name, the member of a gateway's `/signals`, and how replicas are joined."""

    name: str
    signal: str
    joining: Joining


SERIES = {
    one.name: one
    for one in (
        Series("punctual_offered_load", "offered_load", Joining.SUM),
        Series("punctual_arrivals_per_second", "arrivals_per_second", Joining.SUM),
        Series("punctual_rejections_per_second", "rejections_per_second", Joining.SUM),
        Series("punctual_rejection_share", "rejection_share", Joining.WEIGHTED),
        Series("punctual_queue_wait_seconds", "queue_wait_p95", Joining.WORST),
        Series("punctual_queue_wait_mean_seconds", "queue_wait_mean", Joining.WORST),
        Series("punctual_predicted_wait_seconds", "predicted_wait", Joining.WORST),
    )
}
LARGEST = 9.2e15
"""Values are carried as thousandths in 64 bits."""
WEIGHT = "arrivals_per_second"

Signals = Mapping[str, float]


def read_signals(given: object) -> dict[str, float]:
    """The usable numbers of a gateway's answer: finite, not negative, not too large."""
    if not isinstance(given, Mapping):
        return {}
    return {
        str(name): float(value)
        for name, value in given.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and _is_usable(value)
    }


def _is_usable(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= LARGEST


def join(series: Series, parts: list[tuple[Signals, float]]) -> float | None:
    """One value out of replicas, each with a weight of 0 to 1; None when nobody knows it."""
    known = [(one[series.signal], one, weight) for one, weight in parts if series.signal in one]
    if not known:
        return None
    if series.joining is Joining.SUM:
        return sum(value * weight for value, _, weight in known)
    if series.joining is Joining.WORST:
        return max(value for value, _, _ in known)
    arrived = sum(one.get(WEIGHT, 0.0) * weight for _, one, weight in known)
    if arrived <= 0:
        return max(value for value, _, _ in known)
    return sum(value * one.get(WEIGHT, 0.0) * weight for value, one, weight in known) / arrived
