"""Small statistics used by every report: quantiles, and a line fitted by least squares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank quantile of an ascending sequence, None for an empty one.

    It is the smallest value that at least `share` of all values do not exceed.
    """
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def quantiles(values: Sequence[float], digits: int = 3) -> dict[str, float | None]:
    """Return `p50` and `p99`, rounded; None for both when there are no values."""
    ordered = sorted(values)
    return {
        name: None if (value := quantile(ordered, share)) is None else round(value, digits)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the middle two. Raises ValueError for no values."""
    ordered = sorted(values)
    if not ordered:
        msg = "median of no values: there must be at least one"
        raise ValueError(msg)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@dataclass(frozen=True, slots=True)
class Line:
    """y = base + slope * x."""

    base: float
    slope: float

    def at(self, x: float) -> float:
        """Return the line's value at x."""
        return self.base + self.slope * x


def fit_line(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """Fit by relative least squares (weights 1 / y^2), so that short requests count like long ones.

    Raises ValueError when fewer than two different x are given or a y is not above 0.
    """
    if len(set(xs)) < 2 or min(ys, default=0.0) <= 0:
        msg = (
            f"cannot fit a line to x={list(xs)}, y={list(ys)}: there must be two different x, "
            "and every y must be above 0"
        )
        raise ValueError(msg)
    weights = [1.0 / (y * y) for y in ys]
    total = math.fsum(weights)
    mean_x = math.fsum(w * x for w, x in zip(weights, xs, strict=True)) / total
    mean_y = math.fsum(w * y for w, y in zip(weights, ys, strict=True)) / total
    spread = math.fsum(w * (x - mean_x) ** 2 for w, x in zip(weights, xs, strict=True))
    shared = math.fsum(
        w * (x - mean_x) * (y - mean_y) for w, x, y in zip(weights, xs, ys, strict=True)
    )
    slope = shared / spread
    return Line(mean_y - slope * mean_x, slope)


def relative_errors(predicted: Sequence[float], actual: Sequence[float]) -> list[float]:
    """Return |predicted - actual| / actual, pair by pair."""
    return [abs(p - a) / a for p, a in zip(predicted, actual, strict=True)]
