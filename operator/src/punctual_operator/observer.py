"""Gathers what one policy's reconcile needs: from the store, the named Service, the gateways."""

from __future__ import annotations

import dataclasses
from typing import Any

from punctual_operator.api import Api, ApiError
from punctual_operator.diagnosis.autoscaling import lacks_metrics
from punctual_operator.gateway_client import GatewayClient
from punctual_operator.kinds import (
    API_SERVICE,
    BACKEND_SLICE,
    CHILDREN,
    EXTERNAL_METRICS,
    POD,
    POLICY,
    SERVICE,
    child_key,
)
from punctual_operator.observed import (
    BackendService,
    GatewayPod,
    Observed,
    read_pod,
    read_service,
    read_slices,
)
from punctual_operator.ownership import Owner, owner_of
from punctual_operator.pod_start import PodStarts
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.store import Store


class Observer:
    """Reads; changes nothing but its own memory of Services."""

    def __init__(self, api: Api, store: Store, gateways: GatewayClient) -> None:
        self._api = api
        self._store = store
        self._gateways = gateways
        self._starts = PodStarts(api)
        self._services: dict[tuple[str, str], BackendService] = {}

    async def observe(self, policy: AdmissionPolicy) -> Observed:
        """What is known of the cluster; raises ApiError."""
        service = await self._service(policy)
        start = await self._pod_start(policy, service)
        observed = self.look(policy, Observed(service=service, pod_start_seconds=start))
        if lacks_metrics(policy, observed):
            return dataclasses.replace(observed, metrics_owner=await self._metrics_owner())
        return observed

    async def _pod_start(
        self, policy: AdmissionPolicy, service: BackendService | None
    ) -> float | None:
        if policy.autoscaling is None or service is None:
            return None
        return await self._starts.get(policy.namespace, service.selector)

    async def _metrics_owner(self) -> str | None:
        """The Service that answers for external metrics, as namespace/name; empty: none.

        None where it cannot be read, as by an operator with rights in some namespaces alone.
        """
        try:
            found = await self._api.get(API_SERVICE, None, EXTERNAL_METRICS)
        except ApiError:
            return None
        named = ((found or {}).get("spec") or {}).get("service") or {}
        return f"{named.get('namespace')}/{named.get('name')}" if named else ""

    def look(self, policy: AdmissionPolicy, observed: Observed) -> Observed:
        """The same with what the store and the gateways' last reports hold."""
        namespace, service = policy.namespace, policy.decision.backend.service
        endpoints, ports = read_slices(self._store.group(BACKEND_SLICE, namespace, service))
        pods = self._pods(policy)
        answers = self._gateways.known(namespace, pods)
        return dataclasses.replace(
            observed,
            endpoints=endpoints,
            backend_ports=ports,
            older_rival=self._older_rival(policy),
            children=self._children(policy),
            pods=pods,
            reports={name: one.report for name, one in answers.items() if one.report},
            unread={name: one.error for name, one in answers.items() if not one.report},
        )

    def forget_service(self, namespace: str, name: str) -> None:
        """Read this Service anew next time."""
        self._services.pop((namespace, name), None)

    async def _service(self, policy: AdmissionPolicy) -> BackendService | None:
        key = policy.namespace, policy.decision.backend.service
        known = self._services.get(key)
        if known is not None:
            return known
        given = await self._api.get(SERVICE, *key)
        if given is None:
            return None
        found = read_service(given)
        if found.headless:
            # its address never changes, its deletion shows in its EndpointSlices
            self._services[key] = found
        return found

    def _pods(self, policy: AdmissionPolicy) -> tuple[GatewayPod, ...]:
        pods = map(read_pod, self._store.group(POD, policy.namespace, policy.name))
        return tuple(sorted(pods, key=lambda pod: pod.name))

    def _children(self, policy: AdmissionPolicy) -> dict[tuple[str, str], Any]:
        return {
            child_key({**child, "kind": kind.kind}): child
            for kind in CHILDREN
            for child in self._store.group(kind, policy.namespace, policy.name)
            if owner_of(child, policy) is Owner.THIS
        }

    def _older_rival(self, policy: AdmissionPolicy) -> str | None:
        service = policy.decision.backend.service
        others = [
            (other["metadata"].get("creationTimestamp", ""), other["metadata"]["name"])
            for other in self._store.group(POLICY, policy.namespace, service)
            if not other["metadata"].get("deletionTimestamp")
        ]
        oldest = min(others, default=policy.age_key)
        return oldest[1] if oldest < policy.age_key else None
