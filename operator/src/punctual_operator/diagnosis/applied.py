"""PolicyApplied: whether every gateway replica decides by this generation of the policy."""

from __future__ import annotations

from punctual_operator.conditions import ConditionType, Finding, false, true, unknown
from punctual_operator.names import HTTP_PORT
from punctual_operator.observed import Observed
from punctual_operator.policies import AdmissionPolicy

KIND = ConditionType.POLICY_APPLIED


def diagnose_applied(policy: AdmissionPolicy, observed: Observed) -> Finding:
    """What the ready replicas report; one that is not ready serves nobody and is not asked."""
    ready = [pod for pod in observed.pods if pod.ready]
    if not ready:
        return unknown(KIND, "NoGatewayReplica", "no gateway replica is ready to be asked")
    return (
        _rejected(observed)
        or _pending(policy, observed, len(ready))
        or _unread(observed, len(ready))
        or _applied(policy, len(ready))
    )


def _rejected(observed: Observed) -> Finding | None:
    for name, report in sorted(observed.reports.items()):
        if report.problems:
            return false(
                KIND,
                "PolicyRejected",
                f"gateway {name} does not take the policy and keeps generation "
                f"{report.generation}: {'; '.join(report.problems)}; correct the policy, or give "
                "operator and gateway the same release",
            )
    return None


def _pending(policy: AdmissionPolicy, observed: Observed, ready: int) -> Finding | None:
    current = [report.generation >= policy.generation for report in observed.reports.values()]
    if all(current):
        return None
    return false(
        KIND,
        "Pending",
        f"{sum(current)} of {ready} gateway replicas apply generation {policy.generation}; nodes "
        "pass a changed policy on within about a minute",
    )


def _unread(observed: Observed, ready: int) -> Finding | None:
    for name, error in sorted(observed.unread.items()):
        count = f"{len(observed.unread)} of {ready}"
        return unknown(
            KIND,
            "GatewayUnreachable",
            f"{count} gateway replicas cannot be asked ({name}: {error}); let the operator reach "
            f"port {HTTP_PORT} of the gateways",
        )
    if len(observed.reports) < ready:
        return unknown(KIND, "Asking", "the gateway replicas are being asked")
    return None


def _applied(policy: AdmissionPolicy, ready: int) -> Finding:
    generation = policy.generation
    return true(
        KIND, "Applied", f"{ready} of {ready} gateway replicas apply generation {generation}"
    )
