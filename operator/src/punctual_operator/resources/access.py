"""What a gateway may do in the cluster: follow the EndpointSlices of its own namespace."""

from __future__ import annotations

from punctual_operator.names import child_name
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.resources.metadata import Manifest, build_head

RBAC = "rbac.authorization.k8s.io"
GATEWAY_RULES = [
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
]


def build_service_account(policy: AdmissionPolicy) -> Manifest:
    """The identity of the gateway's pods; a pod of theirs has to ask for its token."""
    head = build_head(policy, "v1", "ServiceAccount")
    return head | {"automountServiceAccountToken": False}


def build_role(policy: AdmissionPolicy) -> Manifest:
    """The right to list and watch EndpointSlices."""
    return build_head(policy, f"{RBAC}/v1", "Role") | {"rules": GATEWAY_RULES}


def build_role_binding(policy: AdmissionPolicy) -> Manifest:
    """The role, given to the gateway's account."""
    name = child_name(policy.name)
    account = {"kind": "ServiceAccount", "name": name, "namespace": policy.namespace}
    return build_head(policy, f"{RBAC}/v1", "RoleBinding") | {
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [account],
    }
