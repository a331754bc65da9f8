"""GatewayAvailable: whether at least one gateway replica answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from punctual_operator.conditions import ConditionType, Finding, Status, false, true
from punctual_operator.names import child_name, pool_scaler_name
from punctual_operator.observed import ChildKey, Failure, Observed
from punctual_operator.policies import AdmissionPolicy

KIND = ConditionType.GATEWAY_AVAILABLE

TROUBLES = {
    "ErrImagePull": ("ImagePullFailed", "correct `gateway.image` or give the nodes access to it"),
    "ImagePullBackOff": (
        "ImagePullFailed",
        "correct `gateway.image` or give the nodes access to it",
    ),
    "ErrImageNeverPull": (
        "ImagePullFailed",
        "load the image into the nodes or set `gateway.imagePullPolicy` to IfNotPresent",
    ),
    "InvalidImageName": ("ImagePullFailed", "correct `gateway.image`"),
    "Unschedulable": (
        "Unschedulable",
        "add nodes, or lower `gateway.cpuMillicores` or `gateway.memoryMebibytes`",
    ),
    "CrashLoopBackOff": ("Crashing", "see `kubectl logs --previous` of the pod"),
    "CreateContainerConfigError": ("ContainerConfigInvalid", "see `kubectl describe` of the pod"),
}
"""What a pod's trouble is called here, and the remedy."""

QUOTA_REMEDY = "raise the namespace's ResourceQuota or lower what `gateway` asks for"


def diagnose_gateway(policy: AdmissionPolicy, observed: Observed) -> Finding:
    """What the Deployment and its pods say; what keeps them from being made comes first."""
    scaler = ("HorizontalPodAutoscaler", pool_scaler_name(policy.name))
    # that of the model pods is no part of the gateway
    failures = {key: failure for key, failure in observed.failures.items() if key != scaler}
    return _taken(observed) or _failed(failures) or _deployment(policy, observed)


def _taken(observed: Observed) -> Finding | None:
    if not observed.taken:
        return None
    names = ", ".join(f"{kind} '{name}'" for kind, name in sorted(observed.taken))
    return false(
        KIND,
        "NameTaken",
        f"{names} in this namespace belongs to somebody else and is left alone; "
        "remove it or give the policy another name",
    )


def _failed(failures: Mapping[ChildKey, Failure]) -> Finding | None:
    for (kind, name), failure in sorted(failures.items()):
        if "exceeded quota" in failure.message:
            return false(KIND, "QuotaExceeded", f"{failure.message}; {QUOTA_REMEDY}")
        return false(
            KIND,
            "ApplyFailed",
            f"the API server refused {kind} '{name}' (status {failure.status}): {failure.message}",
        )
    return None


def _deployment(policy: AdmissionPolicy, observed: Observed) -> Finding:
    deployment = observed.children.get(("Deployment", child_name(policy.name)))
    if deployment is None:
        return Finding(KIND, Status.UNKNOWN, "Creating", "the gateway is being made")
    spec, status = deployment.get("spec") or {}, deployment.get("status") or {}
    wanted, available = spec.get("replicas", 1), status.get("availableReplicas", 0)
    if wanted == 0:
        return false(KIND, "ScaledToZero", "no replica is asked for; raise `gateway.replicas`")
    shown = f"{available} of {wanted} gateway replicas are available"
    cause = _cause(status, observed)
    if available and cause is None:
        return true(KIND, "Available", shown)
    if available and cause is not None:
        return true(KIND, "PartlyAvailable", f"{shown}; {cause[1]}")
    if cause is None:
        return false(KIND, "Starting", f"{shown}; the pods are starting")
    return false(KIND, cause[0], f"{shown}; {cause[1]}")


def _cause(status: Mapping[str, Any], observed: Observed) -> tuple[str, str] | None:
    """The first thing that keeps a replica from being available: reason, message with remedy."""
    for condition in status.get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            message = str(condition.get("message", ""))
            if "exceeded quota" in message:
                return "QuotaExceeded", f"{message}; {QUOTA_REMEDY}"
            return "PodsRefused", f"the API server refuses the pods: {message}"
    for pod in observed.pods:
        if pod.trouble is not None:
            return _pod_cause(pod.name, *pod.trouble)
    return None


def _pod_cause(name: str, trouble: str, message: str) -> tuple[str, str]:
    reason, remedy = TROUBLES.get(trouble, (trouble, "see `kubectl describe` of the pod"))
    return reason, f"pod {name}: {trouble}: {message or 'no message'}; {remedy}"
