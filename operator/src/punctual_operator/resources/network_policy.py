"""What the gateway may talk to, where a policy asks for that limit."""

from __future__ import annotations

from typing import Any

from punctual_operator.names import HTTP_PORT_NAME, selector_labels
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.resources.metadata import Manifest, build_head

API_SERVER_PORTS = (443, 6443, 8443, 16443)
"""Where API servers listen: managed clusters, kubeadm and most others, minikube, MicroK8s."""
DNS_PORT = 53


def build_network_policy(policy: AdmissionPolicy) -> Manifest:
    """In: HTTP from anywhere. Out: names, the API server, the model pods' port, other replicas."""
    own = {"matchLabels": selector_labels(policy.name)}
    spec = {
        "podSelector": own,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [_port(HTTP_PORT_NAME)]}],
        "egress": [
            {"ports": [_port(DNS_PORT, "UDP"), _port(DNS_PORT)]},
            {"ports": [_port(port) for port in API_SERVER_PORTS]},
            {"to": [{"podSelector": {}}], "ports": [_port(policy.decision.backend.port)]},
            {"to": [{"podSelector": own}], "ports": [_port(HTTP_PORT_NAME)]},
        ],
    }
    return build_head(policy, "networking.k8s.io/v1", "NetworkPolicy") | {"spec": spec}


def _port(port: int | str, protocol: str = "TCP") -> dict[str, Any]:
    return {"port": port, "protocol": protocol}
