"""Names and labels shared by everything the operator makes or looks for."""

from __future__ import annotations

from collections.abc import Mapping

GROUP = "punctual.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "AdmissionPolicy"
PLURAL = "admissionpolicies"

FIELD_MANAGER = "punctual-operator"
"""Owner of every field the operator sets by server-side apply."""

MANAGED_BY = "app.kubernetes.io/managed-by"
POLICY_LABEL = f"{GROUP}/policy"
APPLIED_HASH = f"{GROUP}/applied-hash"
"""Annotation of a child: digest of the manifest that was applied."""

MANAGED_SELECTOR = f"{MANAGED_BY}={FIELD_MANAGER}"
HEADLESS_SLICE_SELECTOR = "service.kubernetes.io/headless"
SERVICE_OF_SLICE = "kubernetes.io/service-name"

MAXIMUM_NAME_LENGTH = 40
"""Leaves room for `-gateway` and what a Deployment appends, within the 63 characters of a label."""

CONTAINER = "gateway"
POLICY_FILE = "policy.yaml"
POLICY_FOLDER = "/etc/punctual"
HTTP_PORT = 8080
"""The port that the gateway's container listens on."""
HTTP_PORT_NAME = "http"


def child_name(policy: str) -> str:
    """The name of a policy's children: one of each kind is enough."""
    return f"{policy}-gateway"


def pool_scaler_name(policy: str) -> str:
    """The name of the HorizontalPodAutoscaler of the model pods."""
    return f"{policy}-pool"


def selector_labels(policy: str) -> dict[str, str]:
    """The labels that tell one policy's gateway pods from all others; never changed."""
    return {"app.kubernetes.io/name": "punctual-gateway", POLICY_LABEL: policy}


def child_labels(policy: str) -> dict[str, str]:
    """The labels of every child.

    They are listed here and never copied from the policy: a copied label such as
    `app.kubernetes.io/instance` makes deployment tools take a child for one of their own.
    """
    return {
        **selector_labels(policy),
        MANAGED_BY: FIELD_MANAGER,
        "app.kubernetes.io/part-of": "punctual",
        "app.kubernetes.io/component": "gateway",
    }


def policy_of(labels: Mapping[str, str] | None) -> str | None:
    """The name of the policy that a child with these labels belongs to."""
    found = labels or {}
    return found.get(POLICY_LABEL) if found.get(MANAGED_BY) == FIELD_MANAGER else None
