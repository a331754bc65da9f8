"""The adapter's objects: account, rights with their reasons, Service, Deployment.

`python -m punctual_operator.adapter.manifests` prints them; `manifests/metrics-adapter.yaml` holds
what it prints. The adapter makes its Secret and its APIService by itself.
"""

from __future__ import annotations

import sys
from typing import Any

from punctual_operator.adapter.settings import SERVICE, Settings
from punctual_operator.adapter.shapes import GROUP
from punctual_operator.names import GROUP as POLICY_GROUP
from punctual_operator.names import PLURAL
from punctual_operator.yaml_text import yaml_documents

NAMESPACE = "punctual-system"
IMAGE = "punctual/operator:0.1.0"
RBAC = "rbac.authorization.k8s.io"
READER = "punctual-metrics-reader"
SYSTEM = "kube-system"
LABELS = {
    "app.kubernetes.io/name": SERVICE,
    "app.kubernetes.io/part-of": "punctual",
    "app.kubernetes.io/component": "metrics-adapter",
}

Manifest = dict[str, Any]


def build_manifests(namespace: str = NAMESPACE, image: str = IMAGE) -> list[Manifest]:
    """Everything that the adapter needs in a cluster."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(SERVICE, namespace)},
        *build_rights(namespace),
        _service(namespace),
        _disruption_budget(namespace),
        _deployment(namespace, image),
    ]


def build_rights(namespace: str) -> list[Manifest]:
    """What the adapter may do, and who may read its metrics."""
    account = {"kind": "ServiceAccount", "name": SERVICE, "namespace": namespace}
    autoscaler = {
        "kind": "ServiceAccount",
        "name": "horizontal-pod-autoscaler",
        "namespace": SYSTEM,
    }
    return [
        _role("ClusterRole", SERVICE, None, cluster_rules()),
        _binding("ClusterRoleBinding", SERVICE, None, ("ClusterRole", SERVICE), account),
        _role("Role", SERVICE, namespace, secret_rules()),
        _binding("RoleBinding", SERVICE, namespace, ("Role", SERVICE), account),
        # the front proxy's authority and names
        _binding(
            "RoleBinding",
            f"{SERVICE}-authentication",
            SYSTEM,
            ("Role", "extension-apiserver-authentication-reader"),
            account,
        ),
        # SubjectAccessReview
        _binding(
            "ClusterRoleBinding",
            f"{SERVICE}-delegator",
            None,
            ("ClusterRole", "system:auth-delegator"),
            account,
        ),
        _role("ClusterRole", READER, None, [_rule(GROUP, ["*"], ["get", "list"])]),
        _binding("ClusterRoleBinding", READER, None, ("ClusterRole", READER), autoscaler),
    ]


def cluster_rules() -> list[Manifest]:
    """Rights in the whole cluster: which policies and gateways there are, the one APIService."""
    return [
        _rule(POLICY_GROUP, [PLURAL], ["list"]),
        _rule("", ["pods"], ["list"]),
        # creation cannot be limited to a name
        _rule("apiregistration.k8s.io", ["apiservices"], ["create"]),
        _rule("apiregistration.k8s.io", ["apiservices"], ["get", "patch"], [f"v1beta1.{GROUP}"]),
    ]


def secret_rules() -> list[Manifest]:
    """Rights in its own namespace: the one Secret with its certificate."""
    return [
        _rule("", ["secrets"], ["create"]),
        _rule("", ["secrets"], ["get", "update"], [f"{SERVICE}-tls"]),
    ]


def _service(namespace: str) -> Manifest:
    spec = {
        "selector": {"app.kubernetes.io/name": SERVICE},
        "ports": [{"name": "https", "port": 443, "targetPort": "https"}],
    }
    head = {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(SERVICE, namespace)}
    return {**head, "spec": spec}


def _disruption_budget(namespace: str) -> Manifest:
    selector = {"matchLabels": {"app.kubernetes.io/name": SERVICE}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(SERVICE, namespace),
        "spec": {
            "maxUnavailable": 1,
            "selector": selector,
            # replicas that cannot serve yet must not block the drain of their node
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _deployment(namespace: str, image: str) -> Manifest:
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app.kubernetes.io/name": SERVICE}},
        "template": {"metadata": {"labels": LABELS}, "spec": _pod(image)},
    }
    head = {"apiVersion": "apps/v1", "kind": "Deployment"}
    return {**head, "metadata": _metadata(SERVICE, namespace), "spec": spec}


def _pod(image: str) -> Manifest:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": SERVICE}},
    }
    return {
        "serviceAccountName": SERVICE,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [spread],
        "containers": [_container(image)],
        # OpenSSL reads a key from a file only
        "volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
    }


def _container(image: str) -> Manifest:
    return {
        "name": "adapter",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["punctual-metrics-adapter"],
        "args": ["--log-level=INFO"],
        "ports": [{"name": "https", "containerPort": Settings().port}],
        "readinessProbe": _probe("/readyz", 5, 2),
        "livenessProbe": _probe("/livez", 20, 3),
        "resources": {
            "requests": {"cpu": "50m", "memory": "96Mi"},
            "limits": {"memory": "192Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],  # noqa: S108  # a volume
    }


def _probe(path: str, period: int, failures: int) -> Manifest:
    get = {"path": path, "port": "https", "scheme": "HTTPS"}
    return {
        "httpGet": get,
        "periodSeconds": period,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def _metadata(name: str, namespace: str | None) -> Manifest:
    where = {} if namespace is None else {"namespace": namespace}
    return {"name": name, **where, "labels": LABELS}


def _role(kind: str, name: str, namespace: str | None, rules: list[Manifest]) -> Manifest:
    head = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": _metadata(name, namespace)}
    return {**head, "rules": rules}


def _binding(
    kind: str, name: str, namespace: str | None, role: tuple[str, str], subject: Manifest
) -> Manifest:
    head = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": _metadata(name, namespace)}
    reference = {"apiGroup": RBAC, "kind": role[0], "name": role[1]}
    return {**head, "roleRef": reference, "subjects": [subject]}


def _rule(
    group: str, resources: list[str], verbs: list[str], names: list[str] | None = None
) -> Manifest:
    rule: Manifest = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return rule if names is None else {**rule, "resourceNames": names}


def main() -> None:
    """Print the manifests as YAML."""
    sys.stdout.write(yaml_documents(build_manifests()))


if __name__ == "__main__":
    main()
