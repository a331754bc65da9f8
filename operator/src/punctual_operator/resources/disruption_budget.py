"""How many gateway replicas may be evicted at a time."""

from __future__ import annotations

from punctual_operator.names import selector_labels
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.resources.metadata import Manifest, build_head


def build_disruption_budget(policy: AdmissionPolicy) -> Manifest:
    """At most one: a single replica can still be moved, so no node drain is ever blocked."""
    spec = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": selector_labels(policy.name)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return build_head(policy, "policy/v1", "PodDisruptionBudget") | {"spec": spec}
