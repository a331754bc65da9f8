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
        self._records: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._factor = PRIOR_FACTOR

    @property
    def factor(self) -> float:
        """Stretch a predicted duration by this."""
        return self._factor

    @property
    def records(self) -> int:
        """How many completed requests the factor rests on."""
        return len(self._records)

    def set_confidence(self, confidence: float) -> None:
        """Keep another share of the promises, from the same records."""
        if confidence != self._confidence:
            self._confidence = confidence
            self._factor = self._quantile()

    def observe(self, actual_seconds: float, predicted_seconds: float) -> None:
        """Record one completed request."""
        if actual_seconds <= 0 or predicted_seconds <= 0:
            return
        self._records.append((actual_seconds / predicted_seconds, predicted_seconds))
        self._factor = self._quantile()

    def _quantile(self) -> float:
        missing = max(0, FULL_EVIDENCE - len(self._records))
        records = [*self._records, (PRIOR_FACTOR, missing * PRIOR_SECONDS)]
        records.sort(reverse=True)
        left = (1 - self._confidence) * sum(weight for _, weight in records)
        for ratio, weight in records:
            left -= weight
            if left < 0:
                return min(max(ratio, 1.0), MAXIMUM)
        return 1.0
