"""The JSON of the metrics API: discovery, lists of values, and errors.

Shapes after the Kubernetes API reference (`external.metrics.k8s.io/v1beta1`,
`apidiscovery.k8s.io/v2`, `meta/v1`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from punctual_operator.adapter.series import SERIES

GROUP = "external.metrics.k8s.io"
VERSION = "v1beta1"
GROUP_VERSION = f"{GROUP}/{VERSION}"
ROOT = f"/apis/{GROUP}/{VERSION}"
KIND = "ExternalMetricValueList"
DISCOVERY_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

Shape = dict[str, Any]
REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    500: "InternalError",
    503: "ServiceUnavailable",
}


def quantity(value: float) -> str:
    """A Quantity with thousandths, rounded up as Kubernetes does."""
    thousandths = math.ceil(round(value * 1000, 6))
    return str(thousandths // 1000) if thousandths % 1000 == 0 else f"{thousandths}m"


def item(metric: str, labels: Mapping[str, str], value: float, at: float, window: int) -> Shape:
    """One value; `at` is Unix seconds."""
    return {
        "metricName": metric,
        "metricLabels": dict(labels),
        "timestamp": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "window": window,
        "value": quantity(value),
    }


def value_list(items: Iterable[Shape]) -> Shape:
    """The answer to a read."""
    return {"kind": KIND, "apiVersion": GROUP_VERSION, "metadata": {}, "items": list(items)}


def resource_list() -> Shape:
    """The metrics that can be read."""
    resources = [
        {"name": name, "singularName": "", "namespaced": True, "kind": KIND, "verbs": ["get"]}
        for name in SERIES
    ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": GROUP_VERSION,
        "resources": resources,
    }


def group() -> Shape:
    """The API group."""
    version = {"groupVersion": GROUP_VERSION, "version": VERSION}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
    }


def group_list() -> Shape:
    """All groups of this server: one."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]}


def group_discovery() -> Shape:
    """The same with the resources, as newer API servers ask for it."""
    resources = [
        {
            "resource": name,
            "responseKind": {"group": "", "version": "", "kind": KIND},
            "scope": "Namespaced",
            "singularResource": "",
            "verbs": ["get"],
        }
        for name in SERIES
    ]
    version = {"version": VERSION, "resources": resources, "freshness": "Current"}
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{"metadata": {"name": GROUP}, "versions": [version]}],
    }


def status(code: int, message: str) -> Shape:
    """An error."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS[code],
        "code": code,
    }
