"""What the operator may do in the cluster, each rule with its reason.

`python -m punctual_operator.rbac` prints the manifests (`manifests/rbac.yaml`), and with `--table`
the table in `docs/rbac.md`.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from punctual_operator.kinds import CHILDREN
from punctual_operator.names import FIELD_MANAGER, GROUP, PLURAL
from punctual_operator.resources.access import GATEWAY_RULES, RBAC
from punctual_operator.yaml_text import yaml_documents

NAMESPACE = "punctual-system"
CHILD_VERBS = ("get", "list", "watch", "create", "patch", "delete")


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One permission."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    reason: str
    wide: bool = False
    """Of a resource that is in no namespace, so that only a ClusterRole can give it."""

    def manifest(self) -> dict[str, Any]:
        """As in a Role."""
        return {"apiGroups": [self.group], "resources": [self.resource], "verbs": list(self.verbs)}


CHILD_REASONS = {
    "serviceaccounts": "the identity of each gateway",
    "configmaps": "the policy as a file in each gateway's pods",
    "services": "the address of each gateway; `get` also reads the Service that a policy names",
    "deployments": "the pods of each gateway",
    "roles": "lets each gateway follow EndpointSlices in its own namespace, and nothing else",
    "rolebindings": "gives that role to the gateway's account",
    "poddisruptionbudgets": "evictions one replica at a time",
    "networkpolicies": "`gateway.networkPolicy: Enabled`",
    "horizontalpodautoscalers": "`gateway.scaling` and `autoscaling`",
}

RULES = (
    Rule(GROUP, PLURAL, ("list", "watch"), "the policies to work on"),
    Rule(GROUP, f"{PLURAL}/status", ("patch",), "reports conditions"),
    Rule(
        GROUP,
        f"{PLURAL}/finalizers",
        ("update",),
        "owner references that block deletion, where the admission plugin "
        "OwnerReferencesPermissionEnforcement is on (OpenShift)",
    ),
    *(Rule(kind.group, kind.plural, CHILD_VERBS, CHILD_REASONS[kind.plural]) for kind in CHILDREN),
    Rule(
        "",
        "pods",
        ("list", "watch"),
        "which gateway replicas to ask, and why one does not start; how long the "
        "model pods of an autoscaled policy took to start",
    ),
    Rule(
        "discovery.k8s.io",
        "endpointslices",
        ("list", "watch"),
        "the model pods of each Service; nobody can grant a right that they do not have, so the "
        "gateways' role needs it here too",
    ),
    Rule("", "events", ("create",), "one Event for each transition of a condition"),
    Rule(
        "apiregistration.k8s.io",
        "apiservices",
        ("get",),
        "who answers for external metrics, where an autoscaler cannot read them; an operator of "
        "some namespaces goes without, and does not name another owner",
        wide=True,
    ),
)


def build_manifests(namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The operator's ServiceAccount, ClusterRole and ClusterRoleBinding."""
    labels = {"app.kubernetes.io/name": FIELD_MANAGER, "app.kubernetes.io/part-of": "punctual"}
    head: dict[str, Any] = {"metadata": {"name": FIELD_MANAGER, "labels": labels}}
    account = {"kind": "ServiceAccount", "name": FIELD_MANAGER, "namespace": namespace}
    own = {"name": FIELD_MANAGER, "namespace": namespace, "labels": labels}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": FIELD_MANAGER}
    api = {"apiVersion": f"{RBAC}/v1"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own},
        {**api, "kind": "ClusterRole", **head, "rules": [rule.manifest() for rule in RULES]},
        {**api, "kind": "ClusterRoleBinding", **head, "roleRef": role, "subjects": [account]},
    ]


def table() -> str:
    """The rules as a Markdown table."""
    rows = ["| API group | resource | verbs | why |", "|---|---|---|---|"]
    for rule in RULES:
        group = rule.group or "core"
        rows.append(f"| {group} | {rule.resource} | {', '.join(rule.verbs)} | {rule.reason} |")
    return "\n".join(rows) + "\n"


def gateway_table() -> str:
    """What each gateway may do, in its own namespace."""
    rows = ["| API group | resource | verbs |", "|---|---|---|"]
    for rule in GATEWAY_RULES:
        cells = (", ".join(rule[name]) for name in ("apiGroups", "resources", "verbs"))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    """Print the manifests, or with `--table` the table of reasons."""
    sys.stdout.write(table() if "--table" in sys.argv else yaml_documents(build_manifests()))


if __name__ == "__main__":
    main()
