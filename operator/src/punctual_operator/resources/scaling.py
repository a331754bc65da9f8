"""The autoscalers: of the gateway by CPU, of the model pods by the work that is asked for."""

from __future__ import annotations

from typing import Any

from punctual_operator.names import child_name, pool_scaler_name
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.resources import quantities
from punctual_operator.resources.metadata import Manifest, build_head
from punctual_operator.scale_down import SHORTEST_SECONDS
from punctual_operator.sections import Autoscaling, GatewayScaling, Switch

API = "autoscaling/v2"
OFFERED_LOAD = "punctual_offered_load"
"""GPU-seconds of work per second that arrives, refused work included."""
QUEUE_WAIT = "punctual_queue_wait_seconds"
REJECTIONS = "punctual_rejections_per_second"


def build_gateway_scaler(policy: AdmissionPolicy, scaling: GatewayScaling) -> Manifest:
    """The number of gateway replicas by their use of CPU."""
    metric = {
        "type": "Resource",
        "resource": {
            "name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": scaling.target_cpu_percent},
        },
    }
    spec = {
        "scaleTargetRef": _target("apps/v1", "Deployment", child_name(policy.name)),
        "minReplicas": scaling.minimum_replicas,
        "maxReplicas": scaling.maximum_replicas,
        "metrics": [metric],
    }
    return build_head(policy, API, "HorizontalPodAutoscaler") | {"spec": spec}


def build_pool_scaler(
    policy: AdmissionPolicy, scaling: Autoscaling, scale_down_seconds: int = SHORTEST_SECONDS
) -> Manifest:
    """The number of model pods: offered load divided by what one pod is to carry.

    `scale_down_seconds` is the window where the policy names none.
    """
    spec = {
        "scaleTargetRef": _target("apps/v1", str(scaling.target_kind), scaling.target_name),
        "minReplicas": scaling.minimum_replicas,
        "maxReplicas": scaling.maximum_replicas,
        "metrics": _pool_metrics(policy, scaling),
        "behavior": build_behaviour(scaling, scale_down_seconds),
    }
    name = pool_scaler_name(policy.name)
    return build_head(policy, API, "HorizontalPodAutoscaler", name) | {"spec": spec}


def build_behaviour(scaling: Autoscaling, scale_down_seconds: int) -> dict[str, Any]:
    """Window and tolerance; what is left out has the defaults of Kubernetes."""
    given = scaling.scale_down_stabilisation_seconds
    window = scale_down_seconds if given is None else given
    behaviour: dict[str, Any] = {"scaleDown": {"stabilizationWindowSeconds": window}}
    if scaling.tolerance_percent is not None:
        tolerance = {"tolerance": quantities.ratio(scaling.tolerance_percent)}
        behaviour = {"scaleDown": behaviour["scaleDown"] | tolerance, "scaleUp": tolerance}
    return behaviour


def _pool_metrics(policy: AdmissionPolicy, scaling: Autoscaling) -> list[dict[str, Any]]:
    load = quantities.ratio(scaling.target_utilisation_percent)
    metrics = [_external(policy, OFFERED_LOAD, {"type": "AverageValue", "averageValue": load})]
    if scaling.queue_wait is Switch.ENABLED:
        wait = quantities.thousandths(scaling.target_queue_wait_milliseconds)
        metrics.append(_external(policy, QUEUE_WAIT, {"type": "Value", "value": wait}))
    if scaling.rejections is Switch.ENABLED:
        each = quantities.thousandths(scaling.target_rejections_per_pod_milli)
        target = {"type": "AverageValue", "averageValue": each}
        metrics.append(_external(policy, REJECTIONS, target))
    return metrics


def _external(policy: AdmissionPolicy, name: str, target: dict[str, str]) -> dict[str, Any]:
    metric = {"name": name, "selector": {"matchLabels": {"policy": policy.name}}}
    return {"type": "External", "external": {"metric": metric, "target": target}}


def _target(api: str, kind: str, name: str) -> dict[str, str]:
    return {"apiVersion": api, "kind": kind, "name": name}
