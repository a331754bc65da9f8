"""The operator's metrics; their names are API and are in this file alone."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.aiohttp import make_aiohttp_handler

PREFIX = "punctual_operator"


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
