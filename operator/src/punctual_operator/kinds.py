"""The kinds of objects that the operator works with, and where the API server has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from punctual_operator.names import (
    GROUP,
    HEADLESS_SLICE_SELECTOR,
    KIND,
    MANAGED_SELECTOR,
    PLURAL,
    VERSION,
)

Object = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """One kind; `labels` selects what is listed and watched of it."""

    group: str
    version: str
    plural: str
    kind: str
    labels: str = ""

    @property
    def api_version(self) -> str:
        """As in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The path of a collection or of one object, without a query."""
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = [root, self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        return "/".join(parts if name is None else [*parts, name])


def _child(group: str, version: str, plural: str, kind: str) -> Kind:
    return Kind(group, version, plural, kind, labels=MANAGED_SELECTOR)


POLICY = Kind(GROUP, VERSION, PLURAL, KIND)
CHILDREN = tuple(
    _child(*row)
    for row in (
        ("", "v1", "serviceaccounts", "ServiceAccount"),
        ("", "v1", "configmaps", "ConfigMap"),
        ("", "v1", "services", "Service"),
        ("apps", "v1", "deployments", "Deployment"),
        ("rbac.authorization.k8s.io", "v1", "roles", "Role"),
        ("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
        ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
        ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
        ("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    )
)
"""What the operator makes. Of these kinds it sees only objects with its own label."""

POD = _child("", "v1", "pods", "Pod")
"""The gateways' pods, by the same label."""
BACKEND_SLICE = Kind(
    "discovery.k8s.io",
    "v1",
    "endpointslices",
    "EndpointSlice",
    labels=HEADLESS_SLICE_SELECTOR,
)
WATCHED = (POLICY, *CHILDREN, POD, BACKEND_SLICE)
SERVICE = Kind("", "v1", "services", "Service")
"""Services of users, read one by one: a change of one that matters changes its EndpointSlices."""
EVENT = Kind("", "v1", "events", "Event")
API_SERVICE = Kind("apiregistration.k8s.io", "v1", "apiservices", "APIService")
EXTERNAL_METRICS = "v1beta1.external.metrics.k8s.io"
"""The APIService that says who answers for external metrics: one owner in a cluster."""
BY_KIND = {kind.kind: kind for kind in WATCHED}


def child_key(manifest: Object) -> tuple[str, str]:
    """Kind and name of a child."""
    return str(manifest["kind"]), str(manifest["metadata"]["name"])
