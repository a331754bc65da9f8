"""Since when a rate is what it is: over how much of the past an average may be taken.

Work s arrives as a compound Poisson process, so the work within k seconds has the variance k * m
with m = (sum of s^2) per second. Cut a span of n seconds into the newest k and the n - k before,
with the rates a and b. If nothing has changed, a - b has the mean 0 and the variance

    V(k) = max(m, m of the newest k) / k + m / (n - k)

and a cut with |a - b| > z * sqrt(V) shows a change. The larger of the two m keeps one huge request
from being taken for one: it raises the variance of the newest seconds as much as their sum. The
cut with the largest |a - b| / sqrt(V) is where the change most likely was; the span ends there, and
what remains is tested again, until no cut shows a change (binary segmentation from the new end).

So a steady rate is averaged over the whole span, and a step is followed as soon as its noise
allows: the larger it is the sooner. Cost: (n / step) cuts for each test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate


def steady_seconds(
    work: Sequence[float], squares: Sequence[float], *, least: int, deviations: float
) -> int:
    """How many of the newest seconds have one rate; all of them where no change is seen.

    `work` and `squares` hold the sums of s and of s^2 of each second, oldest first; `least` is the
    shortest span and half of it the step between two cuts; `deviations` is z.
    """
    sums, spread = [0.0, *accumulate(work)], [0.0, *accumulate(squares)]
    span = len(work)
    while newer := _newest_change(sums, spread, span, least, deviations):
        span = newer
    return span


def _newest_change(
    sums: list[float], spread: list[float], span: int, least: int, deviations: float
) -> int:
    """How many seconds have passed since the likeliest change within the span; 0: none."""
    end, found, largest = len(sums) - 1, 0, deviations
    begin = end - span
    usual = (spread[end] - spread[begin]) / span if span else 0.0
    if usual <= 0:
        return 0
    for newest in range(least, span - least + 1, max(least // 2, 1)):
        cut, before = end - newest, span - newest
        change = (sums[end] - sums[cut]) / newest - (sums[cut] - sums[begin]) / before
        variance = max(usual, (spread[end] - spread[cut]) / newest) / newest + usual / before
        score = abs(change) / math.sqrt(variance)
        if score > largest:
            found, largest = newest, score
    return found
