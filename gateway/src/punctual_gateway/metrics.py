"""Every metric of the gateway, by name. Labels hold closed vocabularies and pods, nothing else.

Gauges are read when Prometheus asks, so that they are right under full overload too, when nothing
is ever completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from punctual_admission.outcomes import Outcome, Reason

disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WAIT_BUCKETS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)
REFUSAL_BUCKETS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 4)

Gauges = Callable[[], Iterable["Metric"]]


class _Live(Collector):
    """Reads gauges when asked."""

    def __init__(self, read: Gauges) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """The gauges now."""
        return self._read()


class Metrics:
    """Counters and histograms, bound to their labels once so that counting costs little."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.watch(self._totals)
        counter, histogram = self._counter, self._histogram
        self.requests: dict[tuple[Outcome, Reason | None], int] = {
            (outcome, reason): 0 for outcome in Outcome for reason in reasons_of(outcome)
        }
        """Plain numbers, because every refusal counts here; exported when asked."""
        self.invalid = counter("punctual_invalid_requests", "Requests that are wrong.", ("status",))
        would = counter(
            "punctual_would_refuse", "Admitted only because of enforcement: Observe.", ("reason",)
        )
        self.would_refuse = {reason: would.labels(reason.value) for reason in Reason}
        self.queue_wait = histogram(
            "punctual_queue_wait_seconds", "Wait of requests that started.", WAIT_BUCKETS
        )
        self.service = histogram(
            "punctual_service_seconds", "Start to end of completed answers.", WAIT_BUCKETS
        )
        self.predicted_ratio = histogram(
            "punctual_predicted_ratio", "Actual over predicted time of answers.", RATIO_BUCKETS
        )
        self.refusal = histogram(
            "punctual_refusal_seconds", "First byte of a request to its refusal.", REFUSAL_BUCKETS
        )
        promises = counter("punctual_promises", "Admitted requests that started.", ("kept",))
        self.promises = {kept: promises.labels(str(kept).lower()) for kept in (True, False)}
        self.dispatches = counter("punctual_dispatches", "Requests sent to pods.")
        self.retries = counter("punctual_retries", "Of these, sent again after a fault.")
        self.declined = counter(
            "punctual_declined", "Requests that a pod sent back undone.", ("code",)
        )
        self.faults = counter("punctual_upstream_faults", "Pods that broke.", ("fault",))
        self.wasted = counter(
            "punctual_wasted_gpu_seconds", "Work done for answers nobody got in full.", ("outcome",)
        )
        self.saved = counter(
            "punctual_saved_gpu_seconds", "Work left out because it was stopped.", ("outcome",)
        )

    def watch(self, read: Gauges) -> None:
        """Add gauges that are read when asked."""
        self.registry.register(_Live(read))

    def render(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)

    def _totals(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "punctual_requests", "Requests by how they ended and why.", labels=("outcome", "reason")
        )
        for (outcome, reason), number in self.requests.items():
            requests.add_metric((outcome.value, reason.value if reason else ""), number)
        yield requests

    def _counter(self, name: str, help_text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(name, help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, help_text, buckets=buckets, registry=self.registry)


def reasons_of(outcome: Outcome) -> tuple[Reason | None, ...]:
    """The reasons that an outcome can have."""
    if outcome is Outcome.REFUSED:
        return tuple(r for r in Reason if r not in _DROPPED)
    return _DROPPED if outcome is Outcome.EXPIRED else (None,)


_DROPPED = (Reason.DEADLINE_EXCEEDED, Reason.DISPLACED)


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
