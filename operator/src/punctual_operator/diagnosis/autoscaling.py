"""AutoscalingActive: what the HorizontalPodAutoscaler of the model pods says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from punctual_operator.conditions import ConditionType, Finding, false, true, unknown
from punctual_operator.names import pool_scaler_name
from punctual_operator.observed import Observed
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.sections import Autoscaling

KIND = ConditionType.AUTOSCALING_ACTIVE
NO_METRIC = "FailedGetExternalMetric"
ADAPTER = "punctual-metrics-adapter"


def diagnose_autoscaling(policy: AdmissionPolicy, observed: Observed) -> Finding:
    """Whether the model pods are scaled; a policy without `autoscaling` says so."""
    scaling = policy.autoscaling
    if scaling is None:
        return false(
            KIND,
            "NotConfigured",
            "the policy has no `autoscaling` section: the number of model pods is left to others",
        )
    key = ("HorizontalPodAutoscaler", pool_scaler_name(policy.name))
    refused = observed.failures.get(key)
    if refused is not None:
        return false(
            KIND,
            "ApplyFailed",
            f"the API server refused HorizontalPodAutoscaler '{key[1]}' "
            f"(status {refused.status}): {refused.message}",
        )
    conditions = _conditions(observed.children.get(key) or {})
    target = f"{scaling.target_kind} '{scaling.target_name}'"
    able, active = conditions.get("AbleToScale"), conditions.get("ScalingActive")
    if able is not None and able["status"] == "False":
        return false(
            KIND,
            "TargetNotScalable",
            f"{target} cannot be scaled ({able.get('message', '')}); correct "
            "`autoscaling.targetName` and `autoscaling.targetKind`",
        )
    if active is None:
        return unknown(KIND, "Waiting", f"the autoscaler of {target} has not reported yet")
    if active["status"] != "True":
        return _inactive(active, observed.metrics_owner)
    if (conditions.get("ScalingLimited") or {}).get("reason") == "TooManyReplicas":
        return true(
            KIND,
            "AtMaximum",
            f"{target} has the {scaling.maximum_replicas} pods of `autoscaling.maximumReplicas`, "
            "and more are needed",
        )
    warning = _short_window(scaling, observed.pod_start_seconds)
    return true(KIND, "Active", f"{target} is scaled by the load that is offered{warning}")


def _short_window(scaling: Autoscaling, start: float | None) -> str:
    window = scaling.scale_down_stabilisation_seconds
    if window is None or start is None or start <= window:
        return ""
    return (
        f"; `scaleDownStabilisationSeconds` {window} is shorter than the time that its pods take "
        "to start: raise it, or leave it out"
    )


def lacks_metrics(policy: AdmissionPolicy, observed: Observed) -> bool:
    """Whether the autoscaler of the model pods cannot read its metrics."""
    key = ("HorizontalPodAutoscaler", pool_scaler_name(policy.name))
    active = _conditions(observed.children.get(key) or {}).get("ScalingActive", {})
    return active.get("reason") == NO_METRIC


def _inactive(active: Mapping[str, Any], owner: str | None) -> Finding:
    reason, message = str(active.get("reason") or "Inactive"), str(active.get("message", ""))
    if reason == "ScalingDisabled":
        return false(KIND, "ScaledToZero", f"{message}; set the target's `replicas` to at least 1")
    if reason == NO_METRIC and owner and not owner.endswith(f"/{ADAPTER}"):
        return false(
            KIND,
            "MetricsApiTaken",
            f"external.metrics.k8s.io belongs to Service '{owner}' in this cluster, which does not "
            "know this metric; remove that owner, or let it serve Punctual's metrics "
            "(docs/autoscaling.md)",
        )
    if reason == NO_METRIC:
        return false(
            KIND,
            "MetricUnavailable",
            f"{message}; check that Punctual's metrics adapter runs and owns "
            "APIService v1beta1.external.metrics.k8s.io",
        )
    return false(KIND, reason, message)


def _conditions(scaler: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    status = scaler.get("status") or {}
    return {condition["type"]: condition for condition in status.get("conditions") or ()}
