"""BackendsDiscovered: whether there are model pods that the gateway can use."""

from __future__ import annotations

from punctual_operator.conditions import ConditionType, Finding, false, true
from punctual_operator.names import pool_scaler_name
from punctual_operator.observed import BackendService, Observed
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.reports import PodReport

KIND = ConditionType.BACKENDS_DISCOVERED


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
    if not observed.endpoints and _is_idle(policy, observed):
        return true(
            KIND,
            "ScaledToZero",
            "nothing is asked for and the pool has no pods; requests are refused until the first "
            "one, which they start, is ready",
        )
    if not observed.endpoints:
        return false(KIND, "NoPods", f"Service '{name}' has no pods ({_missing(selector)}")
    if observed.ready_endpoints == 0:
        return false(
            KIND,
            "NoReadyPods",
            f"none of the {len(observed.endpoints)} pods of Service '{name}' is ready; see "
            f"`kubectl describe pods{f' -l {selector}' if selector else ''}`",
        )
    return None


def _missing(selector: str) -> str:
    if selector:
        return (
            f"no pod has the labels '{selector}'); start model pods with these labels, or correct "
            "the Service's selector"
        )
    return (
        "it has no selector); give it one of the model pods' labels, or its EndpointSlices, where "
        "they are made by hand, the label `service.kubernetes.io/headless`"
    )


def _is_idle(policy: AdmissionPolicy, observed: Observed) -> bool:
    """Whether the pool is without pods because its autoscaler wants none."""
    scaling = policy.autoscaling
    scaler = observed.children.get(("HorizontalPodAutoscaler", pool_scaler_name(policy.name)))
    if scaling is None or scaling.minimum_replicas > 0 or scaler is None:
        return False
    return bool((scaler.get("status") or {}).get("desiredReplicas") == 0)


def _reported(policy: AdmissionPolicy, observed: Observed) -> Finding | None:
    pods = [pod for report in observed.reports.values() for pod in report.pods]
    if any(pod.usable for pod in pods):
        return None
    wrong = [pod for pod in pods if pod.model and pod.model != policy.decision.model]
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
    if pods:
        return false(
            KIND,
            "PodsUnusable",
            f"no model pod can be used: {pods[0].url}: {pods[0].problem or 'no reason given'}; "
            f"check that the pods serve on port {port}, that they are done starting, and that no "
            "NetworkPolicy is in between",
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
