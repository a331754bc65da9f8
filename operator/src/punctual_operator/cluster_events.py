"""Events: one for each transition of a condition, so that `kubectl describe` tells the story."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from punctual_operator.conditions import Status
from punctual_operator.names import API_VERSION, FIELD_MANAGER, KIND
from punctual_operator.policies import AdmissionPolicy

SILENT_REASONS = frozenset({"NotConfigured"})
"""Conditions that say nothing about what happened."""
EXPECTED_REASONS = frozenset({"Starting", "Pending"})
"""What is False for a while at each start and each change, and wrong only when it stays."""
MAXIMUM_MESSAGE = 1024


def build_event(
    policy: AdmissionPolicy, condition: Mapping[str, Any], now: str
) -> dict[str, Any] | None:
    """The Event for a condition that changed; None where there is nothing to tell."""
    if condition["reason"] in SILENT_REASONS:
        return None
    message = f"{condition['type']}: {condition['message']}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{policy.name}.{uuid.uuid4().hex[:16]}",
            "namespace": policy.namespace,
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": policy.name,
            "namespace": policy.namespace,
            "uid": policy.uid,
        },
        "type": "Warning" if _is_warning(condition) else "Normal",
        "reason": condition["reason"],
        "message": message if len(message) <= MAXIMUM_MESSAGE else f"{message[:1021]}...",
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": FIELD_MANAGER,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _is_warning(condition: Mapping[str, Any]) -> bool:
    is_false = condition["status"] == Status.FALSE
    return is_false and condition["reason"] not in EXPECTED_REASONS
