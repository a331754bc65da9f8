"""Reconcile: from a policy and what is observed to what is wanted. Pure; applies nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from punctual_operator.conditions import (
    NEEDED,
    ConditionType,
    Finding,
    false,
    merge,
    summarise,
    unknown,
)
from punctual_operator.diagnosis.applied import diagnose_applied
from punctual_operator.diagnosis.autoscaling import diagnose_autoscaling
from punctual_operator.diagnosis.backends import diagnose_backends
from punctual_operator.diagnosis.gateway import diagnose_gateway
from punctual_operator.diagnosis.objective import diagnose_objective
from punctual_operator.kinds import child_key
from punctual_operator.names import child_name, pool_scaler_name
from punctual_operator.observed import ChildKey, Observed
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.resources.children import build_children
from punctual_operator.resources.deployment import GatewayImage
from punctual_operator.resources.metadata import Manifest
from punctual_operator.resources.service import gateway_address
from punctual_operator.scale_down import choose_window

DIAGNOSES = (
    diagnose_gateway,
    diagnose_backends,
    diagnose_applied,
    diagnose_autoscaling,
    diagnose_objective,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Desired:
    """What is wanted: manifests to apply, children to delete, findings to report."""

    manifests: tuple[Manifest, ...]
    prune: frozenset[ChildKey]
    findings: tuple[Finding, ...]


def reconcile(policy: AdmissionPolicy, observed: Observed, default: GatewayImage) -> Desired:
    """What the cluster should hold for this policy, and what is to be said about it.

    A policy on a Service that an older policy has gets no gateway: two gateways that do not know of
    each other would promise the same pods twice. One that runs already is left as it is.
    """
    if observed.older_rival is not None:
        return Desired((), frozenset(), _conflict(policy, observed))
    manifests = tuple(
        manifest
        for manifest in build_children(policy, default, _scale_down_seconds(policy, observed))
        if child_key(manifest) not in observed.taken
    )
    wanted = {child_key(manifest) for manifest in manifests}
    findings = tuple(diagnose(policy, observed) for diagnose in DIAGNOSES)
    prune = frozenset(observed.children) - wanted
    return Desired(manifests, prune, (*findings, summarise(findings)))


def _scale_down_seconds(policy: AdmissionPolicy, observed: Observed) -> int:
    scaler = observed.children.get(("HorizontalPodAutoscaler", pool_scaler_name(policy.name))) or {}
    behaviour = (scaler.get("spec") or {}).get("behavior") or {}
    present = (behaviour.get("scaleDown") or {}).get("stabilizationWindowSeconds")
    return choose_window(observed.pod_start_seconds, present)


def _conflict(policy: AdmissionPolicy, observed: Observed) -> tuple[Finding, ...]:
    service = policy.decision.backend.service
    message = (
        f"Service '{service}' belongs to the older policy '{observed.older_rival}'; name another "
        "Service in `backend.service`, or delete one of the two policies"
    )
    return _all(policy, observed, "Conflict", message)


def _all(
    policy: AdmissionPolicy, observed: Observed, reason: str, message: str
) -> tuple[Finding, ...]:
    findings = (
        false(ConditionType.GATEWAY_AVAILABLE, reason, message),
        diagnose_backends(policy, observed),
        false(ConditionType.POLICY_APPLIED, reason, message),
        unknown(ConditionType.AUTOSCALING_ACTIVE, reason, "the policy has no gateway"),
        unknown(ConditionType.OBJECTIVE_ATTAINABLE, reason, "the policy has no gateway"),
    )
    return (*findings, summarise(findings))


def invalid(problem: str) -> tuple[Finding, ...]:
    """The findings for an object that this operator cannot read."""
    message = f"{problem}; install the custom resource definition of this operator's release"
    findings = tuple(
        (false if kind in NEEDED else unknown)(kind, "InvalidPolicy", message)
        for kind in ConditionType
        if kind is not ConditionType.READY
    )
    return (*findings, summarise(findings))


def build_status(
    policy: AdmissionPolicy, observed: Observed, desired: Desired, now: str
) -> dict[str, Any]:
    """The status to write; equal to the one that is there when there is nothing new to say."""
    deployment = observed.children.get(("Deployment", child_name(policy.name))) or {}
    counts = deployment.get("status") or {}
    status: dict[str, Any] = {
        "observedGeneration": policy.generation,
        "address": gateway_address(policy),
        "gateways": (deployment.get("spec") or {}).get("replicas", 0),
        "readyGateways": counts.get("readyReplicas", 0),
        "readyBackends": observed.ready_endpoints,
        "conditions": merge(
            desired.findings, policy.status.get("conditions") or (), policy.generation, now
        ),
    }
    inventory = build_inventory(observed)
    return status | {"inventory": inventory} if inventory else status


def build_inventory(observed: Observed) -> list[dict[str, str]]:
    """The children that exist, sorted."""
    return [{"kind": kind, "name": name} for kind, name in sorted(observed.children)]
