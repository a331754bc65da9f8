"""The adapter's own metrics; their names are API and are in this file alone."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from punctual_operator.metrics import Metrics

PREFIX = "punctual_adapter"
WORKS = ("registration", "front proxy", "certificate")
"""What the adapter keeps up to date."""


class AdapterMetrics(Metrics):
    """Requests to the API server, and answers to it; none of the operator's other metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            f"{PREFIX}_api_requests",
            "Requests to the API server, by verb, resource and status.",
            ["verb", "resource", "status"],
            registry=self.registry,
        )
        self.answers = Counter(
            f"{PREFIX}_answers", "Requests answered, by status.", ["status"], registry=self.registry
        )
        self.seconds = Histogram(
            f"{PREFIX}_answer_seconds",
            "Time to answer a read.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
            registry=self.registry,
        )
        self.rounds = Counter(
            f"{PREFIX}_rounds", "Rounds of questions to all gateways.", registry=self.registry
        )
        self.unread = Gauge(
            f"{PREFIX}_unread_gateways",
            "Ready gateway replicas without a fresh answer.",
            registry=self.registry,
        )
        self.known = Gauge(
            f"{PREFIX}_known_policies", "Policies of this cluster.", registry=self.registry
        )
        self.owner = Gauge(
            f"{PREFIX}_registration",
            "1 for whoever has external.metrics.k8s.io: us, other, nobody.",
            ["owner"],
            registry=self.registry,
        )
        self.certificate_ends = Gauge(
            f"{PREFIX}_certificate_end_timestamp_seconds",
            "When the serving certificate ends.",
            registry=self.registry,
        )
        self.upkeep_failures = Counter(
            f"{PREFIX}_upkeep_failures",
            "Rounds that failed, by what was to be done.",
            ["work"],
            registry=self.registry,
        )
        for work in WORKS:
            self.upkeep_failures.labels(work)

    def render(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)
