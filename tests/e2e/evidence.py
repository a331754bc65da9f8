"""What a cluster says about itself, for the report of a failed test."""

from __future__ import annotations

from e2e.release import NAMESPACE
from e2e.service import GATEWAY_PODS, Service
from testcluster.cluster import Cluster
from testcluster.kubectl import Kubectl, KubectlError

LINES = "--tail=40"


def look_around(cluster: Cluster, service: Service | None) -> str:
    """Pods everywhere, the operator's last words, and what happened in the test's namespace."""
    system = cluster.kubectl(NAMESPACE)
    parts = [
        _say(system, "get", "pods", "--all-namespaces", "-o", "wide"),
        _say(system, "logs", "deployment/punctual-operator", LINES),
    ]
    if service is not None:
        own = service.kubectl
        parts += [
            _say(own, "get", "admissionpolicies", "-o", "wide"),
            _say(own, "get", "events", "--sort-by=.lastTimestamp"),
            _say(own, "logs", GATEWAY_PODS, LINES, "--prefix"),
        ]
    return "\n".join(parts)


def _say(kubectl: Kubectl, *arguments: str) -> str:
    try:
        found = kubectl(*arguments)
    except KubectlError as error:
        found = error.message
    return f"$ kubectl {' '.join(arguments)}\n{found}"
