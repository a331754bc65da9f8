"""BackendsDiscovered: whether there are model pods that the gateway can use."""

from __future__ import annotations

from punctual_operator.conditions import ConditionType, Finding, false, true
from punctual_operator.observed import BackendService, Observed
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.reports import PodReport

KIND = ConditionType.BACKENDS_DISCOVERED
WRONG_MODEL = "wrong_model"
"""The state of a pod, in a gateway's report, that serves another model."""


def diagnose_backends(policy: AdmissionPolicy, observed: Observed) -> Finding:
    """The first thing that is wrong on the way from the Service to a usable pod."""
    return (
        _service(policy, observed.service)
        or _pods(policy, observed)
        or _reported(policy, observed)
        or _found(observed)
    )


def _service(policy: AdmissionPolicy, service: BackendService | None) -> Finding | None:
    name = policy.decision.backend.service
    if service is None:
        return false(
            KIND,
            "ServiceNotFound",
            f"there is no Service '{name}' in namespace '{policy.namespace}'; create it with "
            "`clusterIP: None` and a selector of the model pods, or correct `backend.service`",
        )
    if not service.headless:
        return false(
            KIND,
            "ServiceNotHeadless",
            f"Service '{name}' has an address of its own, which hides the pods; create it anew "
            "with `clusterIP: None`, or name another in `backend.service`",
        )
    return None


def _pods(policy: AdmissionPolicy, observed: Observed) -> Finding | None:
    name = policy.decision.backend.service
    selector = observed.service.selector if observed.service else ""
    if not observed.endpoints:
        chosen = f"no pod has the labels '{selector}'" if selector else "it has no selector"
        return false(
            KIND,
            "NoPods",
            f"Service '{name}' has no pods ({chosen}); start model pods with these labels, or "
            "correct the Service's selector",
        )
    if observed.ready_endpoints == 0:
        return false(
            KIND,
            "NoReadyPods",
            f"none of the {len(observed.endpoints)} pods of Service '{name}' is ready; see "
            f"`kubectl describe pods -l {selector}`",
        )
    return None


def _reported(policy: AdmissionPolicy, observed: Observed) -> Finding | None:
    pods = [pod for report in observed.reports.values() for pod in report.pods]
    if any(pod.usable for pod in pods):
        return None
    wrong = [pod for pod in pods if pod.state == WRONG_MODEL]
    if wrong:
        return _wrong_model(policy, wrong[0])
    port, ports = policy.decision.backend.port, observed.backend_ports
    if ports and port not in ports:
        listed = ", ".join(str(port) for port in sorted(ports))
        return false(
            KIND,
            "WrongPort",
            f"`backend.port` is {port}, but Service '{policy.decision.backend.service}' lists "
            f"port {listed}; correct one of the two",
        )
    if pods and all(pod.state in {"unknown", "unreachable", "dead"} for pod in pods):
        return false(
            KIND,
            "PodsUnreachable",
            f"no gateway replica gets an answer from any model pod on port {port}; check that "
            "the pods serve HTTP on this port and that no NetworkPolicy is in between",
        )
    return None


def _wrong_model(policy: AdmissionPolicy, pod: PodReport) -> Finding:
    return false(
        KIND,
        "WrongModel",
        f"the pods serve model '{pod.model}' ({pod.url}), the policy is for "
        f"'{policy.decision.model}'; correct `model` or `backend.service`",
    )


def _found(observed: Observed) -> Finding:
    ready, total = observed.ready_endpoints, len(observed.endpoints)
    return true(KIND, "Discovered", f"{ready} of {total} model pods are ready")
