"""What the operator sees of the cluster for one policy: plain values, ready for `reconcile`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from punctual_operator.reports import GatewayReport

ChildKey = tuple[str, str]
"""Kind and name."""


@dataclasses.dataclass(frozen=True, slots=True)
class BackendService:
    """The Service that a policy names."""

    headless: bool
    selector: str
    """As `kubectl -l` takes it; empty where the Service has none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Endpoint:
    """One model pod as the EndpointSlices have it."""

    address: str
    ready: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Why the API server did not take a child: HTTP status and its message."""

    status: int
    message: str


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayPod:
    """One replica of the gateway; `trouble` is what keeps it from running, as (reason, message)."""

    name: str
    address: str
    ready: bool
    trouble: tuple[str, str] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Observed:
    """The state of the cluster that matters to one policy."""

    service: BackendService | None = None
    endpoints: tuple[Endpoint, ...] = ()
    backend_ports: frozenset[int] = frozenset()
    older_rival: str | None = None
    """Name of an older policy on the same Service."""
    children: Mapping[ChildKey, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    taken: frozenset[ChildKey] = frozenset()
    """Wanted names that objects of somebody else have."""
    failures: Mapping[ChildKey, Failure] = dataclasses.field(default_factory=dict)
    pods: tuple[GatewayPod, ...] = ()
    reports: Mapping[str, GatewayReport] = dataclasses.field(default_factory=dict)
    """What each ready replica says about itself, by the name of its pod."""
    metrics_owner: str | None = None
    """Service (namespace/name) that answers for external metrics, empty: nobody; None where it
    cannot be told, or was not looked up because the autoscaler lacks none."""
    pod_start_seconds: float | None = None
    """How long the model pods took to start; None where it is not known or not needed."""
    unread: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Why a ready replica could not be asked, by the name of its pod."""

    @property
    def ready_endpoints(self) -> int:
        """How many model pods are ready."""
        return sum(endpoint.ready for endpoint in self.endpoints)


def read_service(given: Mapping[str, Any]) -> BackendService:
    """Read a Service."""
    spec = given.get("spec") or {}
    selector = ",".join(f"{key}={value}" for key, value in (spec.get("selector") or {}).items())
    return BackendService(headless=spec.get("clusterIP") == "None", selector=selector)


def read_slices(slices: Iterable[Mapping[str, Any]]) -> tuple[tuple[Endpoint, ...], frozenset[int]]:
    """Read the EndpointSlices of one Service: its pods by address, and the ports they list."""
    found: dict[str, Endpoint] = {}
    ports: set[int] = set()
    for item in slices:
        ports.update(port["port"] for port in item.get("ports") or () if port.get("port"))
        for endpoint in item.get("endpoints") or ():
            # an absent `ready` means ready, says the API
            ready = (endpoint.get("conditions") or {}).get("ready", True) is not False
            for address in endpoint.get("addresses") or ():
                found[address] = Endpoint(address, ready)
    return tuple(found[address] for address in sorted(found)), frozenset(ports)


def read_pod(given: Mapping[str, Any]) -> GatewayPod:
    """Read a pod of the gateway."""
    status, metadata = given.get("status") or {}, given["metadata"]
    conditions = {item["type"]: item for item in status.get("conditions") or ()}
    stopping = metadata.get("deletionTimestamp") is not None
    ready = (conditions.get("Ready") or {}).get("status") == "True" and not stopping
    return GatewayPod(
        name=metadata["name"],
        address=status.get("podIP") or "",
        ready=ready,
        trouble=None if ready or stopping else _trouble(status, conditions),
    )


def _trouble(
    status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str] | None:
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason", "Unschedulable")), str(scheduled.get("message", ""))
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason", "ContainerCreating") != "ContainerCreating":
            # the last words of the process say more than "back-off 40s restarting failed container"
            return waiting["reason"], _last_words(container) or waiting.get("message") or ""
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            return "CrashLoopBackOff", _words(ended)
    return None


def _last_words(container: Mapping[str, Any]) -> str:
    ended = (container.get("lastState") or {}).get("terminated")
    return _words(ended) if ended else ""


def _words(ended: Mapping[str, Any]) -> str:
    code, message = ended.get("exitCode"), str(ended.get("message") or "").strip()
    return f"exit status {code}: {message}" if message else f"exit status {code}"
