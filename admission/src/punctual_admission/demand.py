"""What is asked of the pool, refused work included: the signals that an autoscaler can use.

Symbols. A request of predicted cost s (GPU-seconds, see `ServiceModel.cost`) arrives; W is the sum
of s over a span divided by its length, so one pod at its best sustainable throughput supplies 1.
A bounded quantity such as the wait of admitted requests saturates once admission control works; W
does not, because a refused request counts as an admitted one does.

    offered load = W over the span since its last change + backlog / drain

The span is as long as the load is steady, from 10 seconds to 10 minutes (see `change`): averaged
over ten minutes the noise of the arrivals moves nothing, and a step is followed within seconds.
Backlog is the work that waits, and `drain` the time in which it may be caught up (about a pod's
start). Rates and waits are over one fixed window.

All sums are over whole seconds of the injected clock. The values are computed when they are read,
so they are right under full overload too, when nothing is ever completed. Nothing is known before
one window has passed: a count that has just begun must not look like a quiet pool.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate

from punctual_admission.change import steady_seconds

LONG_SECONDS = 60
SHORT_SECONDS = 10
STEADY_WINDOWS = 10
"""A steady load is averaged over so many long windows."""
DRAIN_SECONDS = 60.0
CHANGE_DEVIATIONS = 4.0
"""Beyond so many standard deviations a change counts: noise does that once in 16,000 cuts."""
FINEST_WAIT = 0.001
"""Seconds: the first bucket of waits ends here."""
WAIT_GROWTH = 1.1
"""Each bucket of waits is so much wider than the one before: quantiles are right within 10 %."""
QUANTILE = 0.95


@dataclass(slots=True)
class _Second:
    """What happened within one second of the clock."""

    index: int
    arrivals: int = 0
    work: float = 0.0
    squares: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    rejected: int = 0
    waits: dict[int, int] = field(default_factory=dict)
    """Started requests by bucket of their wait."""
    started: int = 0
    waited: float = 0.0
    predicted: float = 0.0
    measured: float = 0.0


@dataclass(frozen=True, slots=True)
class Reading:
    """All signals at one moment; rates are per second, times in seconds."""

    offered_load: float
    """GPU-seconds per second: what the autoscaler divides by the target utilisation."""
    offered_load_short: float
    offered_load_long: float
    load_seconds: int
    """Over how many seconds the offered load is averaged: since its last change."""
    backlog_load: float
    arrivals_per_second: float
    rejections_per_second: float
    rejection_share: float
    """Rejected over arrived, 0 to 1; 0 while nothing arrives."""
    queue_wait_mean: float | None
    """Of requests that started; None while requests arrive and none starts."""
    queue_wait_p95: float | None
    prediction_ratio: float
    """Predicted over measured GPU-seconds of completed requests; the last one that was known."""
    typical_prompt_tokens: int
    typical_output_tokens: int


class Demand:
    """Counts arrivals, rejections, waits and completions; one object per gateway."""

    def __init__(
        self,
        now: float,
        *,
        long_seconds: int = LONG_SECONDS,
        short_seconds: int = SHORT_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        """Begin to count at `now` (monotonic seconds); raises ValueError for wrong windows.

        Rates and waits are over the long window; the offered load is over the short one at least,
        and over ten long ones at most.
        """
        if not 1 <= short_seconds <= long_seconds:
            raise ValueError(
                f"the windows must be 1 <= short <= long, got {short_seconds} and {long_seconds}"
            )
        if drain_seconds <= 0:
            raise ValueError(f"the drain time must be positive, got {drain_seconds}")
        self.long_seconds, self.short_seconds = long_seconds, short_seconds
        self.steady_seconds = long_seconds * STEADY_WINDOWS
        self.drain_seconds = drain_seconds
        self._begun = math.ceil(now)
        self._seconds: deque[_Second] = deque()
        self._ratio = 1.0

    def arrive(self, now: float, cost: float, prompt_tokens: int, output_tokens: int) -> None:
        """A request has come, whatever becomes of it; call it once for all of its retries."""
        second = self._at(now)
        second.arrivals += 1
        second.work += cost
        second.squares += cost * cost
        second.prompt_tokens += prompt_tokens
        second.output_tokens += output_tokens

    def reject(self, now: float) -> None:
        """A request that counts as an arrival was refused, or dropped from the queue."""
        self._at(now).rejected += 1

    def start(self, now: float, wait: float) -> None:
        """A request has begun after so many seconds in the queue."""
        second, wait = self._at(now), max(wait, 0.0)
        second.started += 1
        second.waited += wait
        bucket = _bucket(wait)
        second.waits[bucket] = second.waits.get(bucket, 0) + 1

    def complete(self, now: float, predicted: float, measured: float) -> None:
        """A request was answered in full: GPU-seconds as foreseen at its arrival, and as it was."""
        second = self._at(now)
        second.predicted += predicted
        second.measured += measured

    def read(self, now: float, backlog: float) -> Reading | None:
        """The signals, or None within the first window; `backlog` is GPU-seconds that wait."""
        if now < self._begun + self.long_seconds:
            return None
        seconds = self._window(now, self.long_seconds)
        arrivals = sum(second.arrivals for second in seconds)
        rejected = sum(second.rejected for second in seconds)
        started = sum(second.started for second in seconds)
        span = self._span(now)
        behind = max(backlog, 0.0) / self.drain_seconds
        idle = None if arrivals else 0.0
        return Reading(
            offered_load=self._load(now, span) + behind,
            offered_load_short=self._load(now, self.short_seconds),
            offered_load_long=self._load(now, self.long_seconds),
            load_seconds=span,
            backlog_load=behind,
            arrivals_per_second=arrivals / self.long_seconds,
            rejections_per_second=rejected / self.long_seconds,
            rejection_share=min(rejected / arrivals, 1.0) if arrivals else 0.0,
            queue_wait_mean=_mean_wait(seconds, started) if started else idle,
            queue_wait_p95=_quantile(seconds, started) if started else idle,
            prediction_ratio=self._prediction_ratio(seconds),
            typical_prompt_tokens=round(sum(s.prompt_tokens for s in seconds) / max(arrivals, 1)),
            typical_output_tokens=max(
                round(sum(s.output_tokens for s in seconds) / max(arrivals, 1)), 1
            ),
        )

    def _load(self, now: float, length: int) -> float:
        """The mean load of so many seconds."""
        return math.fsum(second.work for second in self._window(now, length)) / length

    def _span(self, now: float) -> int:
        """How many seconds have had the present load."""
        last = math.floor(now)
        length = min(self.steady_seconds, last - self._begun)
        work, squares = [0.0] * length, [0.0] * length
        for second in self._window(now, length):
            place = second.index - last
            work[place], squares[place] = second.work, second.squares
        return steady_seconds(work, squares, least=self.short_seconds, deviations=CHANGE_DEVIATIONS)

    def _prediction_ratio(self, seconds: list[_Second]) -> float:
        measured = math.fsum(second.measured for second in seconds)
        if measured > 0:
            self._ratio = math.fsum(second.predicted for second in seconds) / measured
        return self._ratio

    def _window(self, now: float, length: int) -> list[_Second]:
        """The whole seconds of the window that has just passed."""
        last, found = math.floor(now), []
        for second in reversed(self._seconds):
            if second.index < last - length:
                break
            if second.index < last:
                found.append(second)
        return found

    def _at(self, now: float) -> _Second:
        index = math.floor(now)
        if self._seconds and self._seconds[-1].index >= index:
            return self._seconds[-1]
        second = _Second(index)
        self._seconds.append(second)
        while self._seconds[0].index < index - self.steady_seconds:
            self._seconds.popleft()
        return second


def _bucket(wait: float) -> int:
    if wait <= FINEST_WAIT:
        return 0
    return math.ceil(math.log(wait / FINEST_WAIT) / math.log(WAIT_GROWTH))


def _mean_wait(seconds: list[_Second], started: int) -> float:
    return math.fsum(second.waited for second in seconds) / started


def _quantile(seconds: list[_Second], started: int) -> float:
    """The upper end of the bucket that holds the 95th percentile; 0 in the finest one."""
    counts: dict[int, int] = {}
    for second in seconds:
        for bucket, count in second.waits.items():
            counts[bucket] = counts.get(bucket, 0) + count
    order = sorted(counts)
    reached = accumulate(counts[bucket] for bucket in order)
    bucket = next(b for b, count in zip(order, reached, strict=True) if count >= QUANTILE * started)
    return FINEST_WAIT * float(WAIT_GROWTH**bucket) if bucket else 0.0
