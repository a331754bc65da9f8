"""Every counter and histogram of the gateway, by name.

Labels hold closed vocabularies and pods, nothing that clients choose. Counting happens on the way
of every refusal, so it is plain arithmetic without locks (there is one event loop); Prometheus'
families are made when somebody asks. Gauges are read then, too, and so are right under full
overload, when nothing is ever completed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from punctual_admission.outcomes import Outcome, Reason
from punctual_gateway.upstream import Fault

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WAIT_BUCKETS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
REFUSAL_BUCKETS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 4)

KNOWN_DECLINES = (
    "deadline_unreachable", "draining", "not_ready", "model_not_found", "queue_full", "overloaded"
)  # fmt: skip
OTHER = "other"
"""Codes with which pods send requests back."""
UNFINISHED = (Outcome.LATE, Outcome.FAILED, Outcome.CANCELLED)
"""How requests end that a pod worked on and nobody got whole and in time."""

Families = Callable[[], Iterable["Metric"]]


class Count:
    """A counter; `known` label values are exported from the start."""

    def __init__(
        self,
        name: str,
        help_text: str,
        labels: tuple[str, ...] = (),
        known: Iterable[tuple[str, ...]] = ((),),
    ) -> None:
        self.name = name
        self._help = help_text
        self._labels = labels
        self.values: dict[tuple[str, ...], float] = dict.fromkeys(known, 0.0)

    def export(self, known: Iterable[tuple[str, ...]]) -> None:
        """Export these label values from now on, so that their first event is no gap to rates."""
        for labels in known:
            self.values.setdefault(labels, 0.0)

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Count one, or a quantity."""
        self.values[labels] = self.values.get(labels, 0.0) + by

    def family(self) -> Metric:
        """As Prometheus sees it."""
        family = CounterMetricFamily(self.name, self._help, labels=self._labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family


class Histogram:
    """Values sorted into buckets with these upper bounds, and one above them."""

    def __init__(self, name: str, help_text: str, bounds: tuple[float, ...]) -> None:
        self.name = name
        self._help = help_text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Sort one value in."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def family(self) -> Metric:
        """As Prometheus sees it: each bucket counts all that is not above its bound."""
        total, buckets = 0, []
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        for name, number in zip(names, self._counts, strict=True):
            total += number
            buckets.append((name, float(total)))
        return HistogramMetricFamily(self.name, self._help, buckets=buckets, sum_value=self._sum)


class _Live(Collector):
    """Makes families when asked."""

    def __init__(self, read: Families) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """The families now."""
        return self._read()


class Metrics:
    """What is counted."""

    def __init__(self) -> None:
        self.requests: dict[tuple[Outcome, Reason | None], int] = {
            (outcome, reason): 0 for outcome in Outcome for reason in reasons_of(outcome)
        }
        """Ended requests; every request that was decided on ends once."""
        self.invalid = Count(
            "punctual_invalid_requests", "Requests that are wrong.", ("status",), known=()
        )
        self.would_refuse = Count(
            "punctual_would_refuse",
            "Admitted only because of enforcement: Observe.",
            ("reason",),
            known=((reason.value,) for reason in reasons_of(Outcome.REFUSED) if reason),
        )
        self.tiers = Count(
            "punctual_tier_requests",
            "Ended requests by tier; empty: of none.",
            ("tier", "outcome"),
            known=(),
        )
        self.shortened = Count(
            "punctual_shortened", "Shorter answers than asked for, taken instead of a refusal."
        )
        self.promises = Count(
            "punctual_promises",
            "Admitted requests that were answered, in time or not.",
            ("kept",),
            known=(("true",), ("false",)),
        )
        self.scouts = Count(
            "punctual_length_scouts",
            "Answers without a promise, from which lengths were learned.",
            ("outcome",),
            known=((outcome.value,) for outcome in Outcome if outcome is not Outcome.REFUSED),
        )
        self.dispatches = Count("punctual_dispatches", "Requests sent to pods.")
        self.retries = Count("punctual_retries", "Of these, sent again after a fault.")
        self.declined = Count(
            "punctual_declined",
            "Requests that a pod sent back undone.",
            ("code",),
            known=((code,) for code in (*KNOWN_DECLINES, OTHER)),
        )
        self.faults = Count(
            "punctual_upstream_faults",
            "Pods that broke.",
            ("fault",),
            known=((fault.value,) for fault in Fault),
        )
        self.wasted = Count(
            "punctual_wasted_gpu_seconds",
            "Work done for answers that nobody got in full.",
            ("outcome",),
            known=((outcome.value,) for outcome in UNFINISHED),
        )
        self.saved = Count(
            "punctual_saved_gpu_seconds",
            "Work left out because it was stopped.",
            ("outcome",),
            known=((outcome.value,) for outcome in UNFINISHED),
        )
        self.queue_wait = Histogram(
            "punctual_queue_wait_seconds", "Wait of requests that started.", WAIT_BUCKETS
        )
        self.service = Histogram(
            "punctual_service_seconds", "Start to end of completed answers.", WAIT_BUCKETS
        )
        self.predicted_ratio = Histogram(
            "punctual_predicted_ratio", "Actual over predicted time of answers.", RATIO_BUCKETS
        )
        self.length_ratio = Histogram(
            "punctual_length_ratio", "Tokens of answers over those expected.", RATIO_BUCKETS
        )
        self.refusal = Histogram(
            "punctual_refusal_seconds", "First byte of a request to its refusal.", REFUSAL_BUCKETS
        )
        self.registry = CollectorRegistry()
        self.watch(self._families)

    def watch(self, read: Families) -> None:
        """Add families that are made when asked."""
        self.registry.register(_Live(read))

    def render(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def _families(self) -> Iterable[Metric]:
        yield self._requests()
        for value in vars(self).values():
            if isinstance(value, Count | Histogram):
                yield value.family()

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "punctual_requests", "Requests by how they ended and why.", labels=("outcome", "reason")
        )
        for (outcome, reason), number in self.requests.items():
            family.add_metric((outcome.value, reason.value if reason else ""), number)
        return family


_DROPPED = (Reason.DEADLINE_EXCEEDED, Reason.DISPLACED)


def reasons_of(outcome: Outcome) -> tuple[Reason | None, ...]:
    """The reasons that an outcome can have."""
    if outcome is Outcome.REFUSED:
        return tuple(reason for reason in Reason if reason not in _DROPPED)
    return _DROPPED if outcome is Outcome.EXPIRED else (None,)


def gauge(
    name: str, help_text: str, values: dict[tuple[str, ...], float], labels: tuple[str, ...] = ()
) -> GaugeMetricFamily:
    """One gauge with its values by label values."""
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    return family


def count(name: str, help_text: str, value: float) -> CounterMetricFamily:
    """One counter that is kept elsewhere."""
    family = CounterMetricFamily(name, help_text)
    family.add_metric((), value)
    return family
