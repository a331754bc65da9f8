"""What all children have in common: name, namespace, labels and owner."""

from __future__ import annotations

from typing import Any

from punctual_operator.names import child_labels, child_name
from punctual_operator.policies import AdmissionPolicy

Manifest = dict[str, Any]


def build_head(policy: AdmissionPolicy, api: str, kind: str, name: str | None = None) -> Manifest:
    """The head of a child's manifest; `name` is that of most children if not given."""
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": name or child_name(policy.name),
            "namespace": policy.namespace,
            "labels": child_labels(policy.name),
            "ownerReferences": [policy.owner_reference],
        },
    }
