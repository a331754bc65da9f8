"""The address of the gateway."""

from __future__ import annotations

from punctual_operator.names import HTTP_PORT_NAME, child_name, selector_labels
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.resources.metadata import Manifest, build_head


def build_service(policy: AdmissionPolicy) -> Manifest:
    """A Service with an address of its own in front of the gateway's pods."""
    port = {
        "name": HTTP_PORT_NAME,
        "port": policy.gateway.service_port,
        "targetPort": HTTP_PORT_NAME,
        "protocol": "TCP",
        "appProtocol": "http",
    }
    spec = {"type": "ClusterIP", "selector": selector_labels(policy.name), "ports": [port]}
    return build_head(policy, "v1", "Service") | {"spec": spec}


def gateway_address(policy: AdmissionPolicy) -> str:
    """The URL of the gateway for clients inside the cluster."""
    port = policy.gateway.service_port
    host = f"{child_name(policy.name)}.{policy.namespace}.svc"
    return f"http://{host}" if port == 80 else f"http://{host}:{port}"
