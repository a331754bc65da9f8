"""The safety margin: how far predictions have to be stretched to keep a share of the promises.

A promise is made on a predicted duration (arrival to end, or start to end). Each kept record is
the ratio actual / predicted of one completed request, weighted by its predicted duration: noise
comes by the second, so ten seconds of evidence say more than ten milliseconds, and one hiccup in
a short request must not set the margin of long ones. The margin is the weighted `confidence`
quantile of the newest `WINDOW` ratios, at least 1.

Until `FULL_EVIDENCE` ratios are known a prior stands in for what is missing: `PRIOR_SECONDS` of
evidence for each missing record, at `PRIOR_FACTOR`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

WINDOW = 256
FULL_EVIDENCE = 100
PRIOR_FACTOR = 1.08
PRIOR_SECONDS = 0.2
MAXIMUM = 2.0
"""No margin above this: worse is a change of speed, which the speed ratio follows."""


class Margin:
    """A factor of at least 1 on predicted durations."""

    def __init__(self, confidence: float) -> None:
        self._confidence = confidence
        self._newest: deque[tuple[float, int]] = deque()
        self._ordered: list[tuple[float, int]] = []
        self._weight = 0
        self._factor = PRIOR_FACTOR
        self._stale = False
        """Whether `_factor` has to be worked out again; not every mode asks for every margin."""

    @property
    def factor(self) -> float:
        """Stretch a predicted duration by this."""
        if self._stale:
            self._factor, self._stale = self._quantile(), False
        return self._factor

    @property
    def records(self) -> int:
        """How many completed requests the factor rests on."""
        return len(self._newest)

    def set_confidence(self, confidence: float) -> None:
        """Keep another share of the promises, from the same records."""
        if confidence != self._confidence:
            self._confidence = confidence
            self._stale = True

    def observe(self, actual_seconds: float, predicted_seconds: float) -> None:
        """Record one completed request."""
        if actual_seconds <= 0 or predicted_seconds <= 0:
            return
        record = (actual_seconds / predicted_seconds, _weight(predicted_seconds))
        self._newest.append(record)
        insort(self._ordered, record)
        self._weight += record[1]
        if len(self._newest) > WINDOW:
            oldest = self._newest.popleft()
            del self._ordered[bisect_left(self._ordered, oldest)]
            self._weight -= oldest[1]
        self._stale = True

    def _quantile(self) -> float:
        missing = FULL_EVIDENCE - len(self._newest)
        prior = _weight(PRIOR_SECONDS * missing) if missing > 0 else 0
        left = (1 - self._confidence) * (self._weight + prior)
        for ratio, weight in reversed(self._ordered):
            if prior and ratio <= PRIOR_FACTOR:
                if prior > left:
                    return PRIOR_FACTOR
                left -= prior
                prior = 0
            if weight > left:
                return 1.0 if ratio < 1 else min(ratio, MAXIMUM)
            left -= weight
        return PRIOR_FACTOR if prior > left else 1.0


def _weight(seconds: float) -> int:
    """Microseconds: whole numbers, so that adding and taking away leaves nothing behind."""
    return round(seconds * 1e6) or 1
