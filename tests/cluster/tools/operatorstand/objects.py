"""Objects that tests of the operator create, and what they read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testcluster.cluster import Cluster
from testcluster.kubectl import Kubectl, KubectlError
from testcluster.waiting import wait_until

ROOT = Path(__file__).resolve().parents[4]
MANIFESTS = ROOT / "manifests"
SYSTEM = "punctual-system"
"""The operator's namespace."""
CHILD_KINDS = (
    "serviceaccount",
    "role",
    "rolebinding",
    "configmap",
    "service",
    "poddisruptionbudget",
    "deployment",
)
"""The kinds that every policy with defaults has."""


def policy(name: str = "gpt2", **spec: Any) -> dict[str, Any]:
    """An AdmissionPolicy on the Service `pods`."""
    base: dict[str, Any] = {"model": "gpt2", "backend": {"service": "pods"}}
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": name},
        "spec": base | spec,
    }


def service(name: str = "pods", *, headless: bool = True, port: int = 8000) -> dict[str, Any]:
    """A Service in front of pods with the label `app: pods`."""
    spec: dict[str, Any] = {"selector": {"app": "pods"}, "ports": [{"port": port}]}
    if headless:
        spec["clusterIP"] = "None"
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def endpoint_slice(*, port: int = 8000, ready: bool = True) -> dict[str, Any]:
    """An EndpointSlice by hand, as the controller makes it from pods that run."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "pods-by-hand",
            "labels": {
                "kubernetes.io/service-name": "pods",
                "service.kubernetes.io/headless": "",
            },
        },
        "addressType": "IPv4",
        "ports": [{"port": port, "protocol": "TCP", "name": ""}],
        "endpoints": [{"addresses": ["10.9.9.1"], "conditions": {"ready": ready}}],
    }


def install(cluster: Cluster) -> None:
    """Install the custom resource definition and the operator's account and rights."""
    kubectl = cluster.kubectl(SYSTEM)
    kubectl("apply", "--server-side", "-f", str(MANIFESTS / "crd.yaml"))
    kubectl("wait", "--for=condition=Established", "crd/admissionpolicies.punctual.dev")
    if f"namespace/{SYSTEM}" not in kubectl("get", "namespaces", "-o", "name").split():
        kubectl("create", "namespace", SYSTEM)
    kubectl("apply", "--server-side", "-f", str(MANIFESTS / "rbac.yaml"))
    wait_until(
        lambda: "admissionpolicies" in kubectl("api-resources", "--api-group=punctual.dev"),
        "policies are served",
    )


def conditions(kubectl: Kubectl, name: str = "gpt2") -> dict[str, dict[str, Any]]:
    """The conditions of a policy by type."""
    status = kubectl.json("get", "admissionpolicy", name).get("status", {})
    return {one["type"]: one for one in status.get("conditions", ())}


def wait_reason(
    kubectl: Kubectl, kind: str, reason: str, name: str = "gpt2", seconds: float = 60
) -> dict[str, Any]:
    """Wait for a condition to have a reason, and return it."""

    def look() -> dict[str, Any]:
        found = conditions(kubectl, name).get(kind, {})
        assert found.get("reason") == reason, found
        return found

    return wait_until(look, f"{kind} has the reason {reason}", seconds=seconds)


def exists(kubectl: Kubectl, kind: str, name: str) -> bool:
    """Whether there is such an object."""
    try:
        kubectl("get", kind, name, "-o", "name")
    except KubectlError as error:
        if "not found" in error.message:
            return False
        raise
    return True


def wait_children(kubectl: Kubectl, name: str = "gpt2", *, there: bool = True) -> None:
    """Wait until all children of a policy with defaults exist, or none of them does."""
    wait_until(
        lambda: all(exists(kubectl, kind, f"{name}-gateway") is there for kind in CHILD_KINDS),
        f"the children of {name} are {'there' if there else 'gone'}",
    )
