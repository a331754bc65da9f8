"""All children that a policy asks for."""

from __future__ import annotations

from punctual_operator.policies import AdmissionPolicy
from punctual_operator.resources.access import (
    build_role,
    build_role_binding,
    build_service_account,
)
from punctual_operator.resources.config_map import build_config_map
from punctual_operator.resources.deployment import GatewayImage, build_deployment
from punctual_operator.resources.disruption_budget import build_disruption_budget
from punctual_operator.resources.metadata import Manifest
from punctual_operator.resources.network_policy import build_network_policy
from punctual_operator.resources.scaling import build_gateway_scaler, build_pool_scaler
from punctual_operator.resources.service import build_service
from punctual_operator.scale_down import SHORTEST_SECONDS
from punctual_operator.sections import Switch


def build_children(
    policy: AdmissionPolicy, default: GatewayImage, scale_down_seconds: int = SHORTEST_SECONDS
) -> list[Manifest]:
    """The manifests, in the order in which they are of use: what a pod needs before the pods.

    `scale_down_seconds` is the autoscaler's window where the policy names none.
    """
    return [
        build_service_account(policy),
        build_role(policy),
        build_role_binding(policy),
        build_config_map(policy),
        build_service(policy),
        *_optional(policy, scale_down_seconds),
        build_deployment(policy, default),
    ]


def _optional(policy: AdmissionPolicy, scale_down_seconds: int) -> list[Manifest]:
    gateway, found = policy.gateway, []
    if gateway.disruption_budget is Switch.ENABLED:
        found.append(build_disruption_budget(policy))
    if gateway.network_policy is Switch.ENABLED:
        found.append(build_network_policy(policy))
    if gateway.scaling is not None:
        found.append(build_gateway_scaler(policy, gateway.scaling))
    if policy.autoscaling is not None:
        found.append(build_pool_scaler(policy, policy.autoscaling, scale_down_seconds))
    return found
