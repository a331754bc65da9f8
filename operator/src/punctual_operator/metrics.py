"""The operator's metrics; their names are API and are in this file alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.aiohttp import make_aiohttp_handler
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "punctual_operator"
RESULTS = ("ok", "error")
CONDITION_LABELS = ("namespace", "policy", "type", "status", "reason")


class Metrics:
    """One process's metrics, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Counter(
            f"{PREFIX}_reconciles",
            "Policies worked on, by result: ok, error.",
            ["result"],
            registry=self.registry,
        )
        for result in RESULTS:
            self.reconciles.labels(result)
        self.reconcile_seconds = Histogram(
            f"{PREFIX}_reconcile_seconds",
            "Time to work on one policy.",
            buckets=(0.005, 0.02, 0.1, 0.5, 2.0, 10.0),
            registry=self.registry,
        )
        self.requests = Counter(
            f"{PREFIX}_api_requests",
            "Requests to the API server, by verb, resource and status.",
            ["verb", "resource", "status"],
            registry=self.registry,
        )
        self.waiting = Gauge(
            f"{PREFIX}_waiting_policies", "Policies that wait for a worker.", registry=self.registry
        )
        self.policies = Gauge(
            f"{PREFIX}_policies", "Policies that the operator knows.", registry=self.registry
        )
        self.missed = Counter(
            f"{PREFIX}_missed_changes",
            "Changes that a full comparison found and no watch had told.",
            registry=self.registry,
        )
        self.handler = make_aiohttp_handler(self.registry)

    def watch_policies(self, read: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        """Export the conditions of the policies that `read` returns, at each scrape."""
        self.registry.register(_Conditions(read))


class _Conditions(Collector):
    """The conditions as the policies' status has them."""

    def __init__(self, read: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """One series for each policy and condition."""
        family = GaugeMetricFamily(
            f"{PREFIX}_condition",
            "1 for the status and reason of each condition of each policy.",
            labels=CONDITION_LABELS,
        )
        for policy in self._read():
            metadata = policy["metadata"]
            for condition in (policy.get("status") or {}).get("conditions") or ():
                told = (condition[name] for name in CONDITION_LABELS[2:])
                family.add_metric([metadata["namespace"], metadata["name"], *told], 1.0)
        yield family
