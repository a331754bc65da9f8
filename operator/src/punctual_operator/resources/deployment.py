"""The gateway's pods.

Nothing in the pod template depends on the decision part of the policy: a changed deadline reaches
the pods through the mounted file and replaces none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from punctual_operator.names import (
    CONTAINER,
    HTTP_PORT,
    HTTP_PORT_NAME,
    POLICY_FILE,
    POLICY_FOLDER,
    child_labels,
    child_name,
    selector_labels,
)
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.resources import quantities
from punctual_operator.resources.metadata import Manifest, build_head
from punctual_operator.sections import Gateway

EXIT_MARGIN_SECONDS = 10
"""Time for a drained gateway to close its connections and end."""


@dataclass(frozen=True, slots=True)
class GatewayImage:
    """The image of gateways whose policy names none."""

    name: str
    pull_secrets: tuple[str, ...] = ()
    """Secrets to pull with where a policy names none, in each policy's own namespace."""


def build_deployment(policy: AdmissionPolicy, default: GatewayImage) -> Manifest:
    """The Deployment; without `replicas` where an autoscaler sets them."""
    gateway = policy.gateway
    spec: dict[str, Any] = {} if gateway.scaling else {"replicas": gateway.replicas}
    spec |= {
        "selector": {"matchLabels": selector_labels(policy.name)},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
        },
        "progressDeadlineSeconds": 120,
        "revisionHistoryLimit": 3,
        "template": _template(policy, default),
    }
    return build_head(policy, "apps/v1", "Deployment") | {"spec": spec}


def grace_seconds(gateway: Gateway) -> int:
    """How long a stopping pod may take: accept, finish what was admitted, end."""
    return gateway.accept_seconds + gateway.finish_seconds + EXIT_MARGIN_SECONDS


def _template(policy: AdmissionPolicy, default: GatewayImage) -> Manifest:
    name, gateway = child_name(policy.name), policy.gateway
    secrets = gateway.image_pull_secrets or default.pull_secrets
    spec: dict[str, Any] = {
        "serviceAccountName": name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_seconds(gateway),
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [_spread(policy.name)],
        "containers": [_container(policy, gateway.image or default.name)],
        "volumes": [
            {"name": "policy", "configMap": {"name": name}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "16Mi"}},
        ],
    }
    if secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in secrets]
    if gateway.priority_class:
        spec["priorityClassName"] = gateway.priority_class
    return {"metadata": {"labels": child_labels(policy.name)}, "spec": spec}


def _container(policy: AdmissionPolicy, image: str) -> dict[str, Any]:
    gateway = policy.gateway
    memory = quantities.memory(gateway.memory_mebibytes)
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": str(gateway.image_pull_policy),
        "args": build_arguments(policy),
        "env": [_from_field("POD_NAME", "metadata.name"), _namespace_variable()],
        "ports": [{"name": HTTP_PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": quantities.cpu(gateway.cpu_millicores), "memory": memory},
            # no limit on CPU: a throttled gateway would refuse late
            "limits": {"memory": memory},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "startupProbe": _probe("/healthz", period=1, failures=60),
        # Not /readyz, which says no from SIGTERM on. A pod that is deleted is not ready whatever it
        # says; if it was the only one, its Service still leads to it while its probe succeeds.
        "readinessProbe": _probe("/servingz", period=2, failures=2),
        "livenessProbe": _probe("/healthz", period=10, failures=3),
        "volumeMounts": [
            # a folder and not a single file: only whole mounts follow the ConfigMap
            {"name": "policy", "mountPath": POLICY_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  # the container's own
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def build_arguments(policy: AdmissionPolicy) -> list[str]:
    """The command line of `punctual-gateway`; the replicas find one another by their Service."""
    gateway = policy.gateway
    return [
        f"--policy={POLICY_FOLDER}/{POLICY_FILE}",
        "--backend-slices",
        f"--peer-slices={child_name(policy.name)}:{HTTP_PORT}",
        "--host=0.0.0.0",
        f"--port={HTTP_PORT}",
        f"--drain-accept-seconds={gateway.accept_seconds}",
        f"--drain-limit-seconds={gateway.finish_seconds}",
    ]


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": HTTP_PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _namespace_variable() -> dict[str, Any]:
    return _from_field("POD_NAMESPACE", "metadata.namespace")


def _spread(policy: str) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector_labels(policy)},
    }
