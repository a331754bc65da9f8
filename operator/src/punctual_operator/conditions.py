"""Conditions: how the operator reports what it found.

Each diagnosis yields one `Finding`; `summarise` derives `Ready` from those that a client depends on
(False outweighs Unknown), and `merge` carries the time of the last transition over, so that nothing
changes while nothing changed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

LONGEST_REASON, LONGEST_MESSAGE = 1024, 32_768
"""Characters that the definition of a condition takes."""


class ConditionType(StrEnum):
    """The conditions of a policy; all are set from the first visit on."""

    READY = "Ready"
    GATEWAY_AVAILABLE = "GatewayAvailable"
    BACKENDS_DISCOVERED = "BackendsDiscovered"
    POLICY_APPLIED = "PolicyApplied"
    AUTOSCALING_ACTIVE = "AutoscalingActive"
    OBJECTIVE_ATTAINABLE = "ObjectiveAttainable"


NEEDED = (
    ConditionType.GATEWAY_AVAILABLE,
    ConditionType.BACKENDS_DISCOVERED,
    ConditionType.POLICY_APPLIED,
)
"""What `Ready` depends on: an autoscaler or an objective in trouble still serves requests."""


class Status(StrEnum):
    """The value of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One condition without its times: the cause as one word, and as a sentence with the remedy."""

    type: ConditionType
    status: Status
    reason: str
    message: str


def true(kind: ConditionType, reason: str, message: str) -> Finding:
    """All is as wanted."""
    return Finding(kind, Status.TRUE, reason, message)


def false(kind: ConditionType, reason: str, message: str) -> Finding:
    """It is not, and the message says what to do."""
    return Finding(kind, Status.FALSE, reason, message)


def unknown(kind: ConditionType, reason: str, message: str) -> Finding:
    """It cannot be told yet."""
    return Finding(kind, Status.UNKNOWN, reason, message)


def summarise(findings: Sequence[Finding]) -> Finding:
    """`Ready`: the worst of the conditions it depends on, the earliest in order if several."""
    needed = [finding for finding in findings if finding.type in NEEDED]
    for status in (Status.FALSE, Status.UNKNOWN):
        for finding in needed:
            if finding.status is status:
                message = f"{finding.type}: {finding.message}"
                return Finding(ConditionType.READY, status, finding.reason, message)
    return true(ConditionType.READY, "Serving", "the gateway serves requests under this policy")


def merge(
    findings: Sequence[Finding], earlier: Sequence[Mapping[str, Any]], generation: int, now: str
) -> list[dict[str, Any]]:
    """The list for `status.conditions`, sorted by type.

    `now` (RFC 3339) is the transition time of a condition whose status is new.
    """
    known = {condition["type"]: condition for condition in earlier}
    ordered = sorted(findings, key=lambda finding: finding.type)
    return [_merged(finding, known.get(finding.type), generation, now) for finding in ordered]


def _merged(
    finding: Finding, earlier: Mapping[str, Any] | None, generation: int, now: str
) -> dict[str, Any]:
    kept = earlier is not None and earlier["status"] == finding.status
    return {
        "type": str(finding.type),
        "status": str(finding.status),
        "reason": _word(finding.reason),
        "message": _shortened(finding.message),
        "observedGeneration": generation,
        "lastTransitionTime": earlier["lastTransitionTime"] if kept and earlier else now,
    }


def _word(reason: str) -> str:
    """A reason that the schema takes: what nodes and autoscalers say is theirs to choose."""
    kept = re.sub(r"[^A-Za-z0-9_]", "", reason).lstrip("0123456789_")
    return kept[:LONGEST_REASON] or "Unknown"


def _shortened(message: str) -> str:
    """A message that the schema takes, whatever a gateway or a pod has to say."""
    fits = len(message) <= LONGEST_MESSAGE
    return message if fits else f"{message[: LONGEST_MESSAGE - 3]}..."


def transitions(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The conditions whose status or reason is another one than before, first visits included.

    Left out is what another condition tells already: a first Unknown, and `Ready` while it stays
    something else than True.
    """
    known = {condition["type"]: condition for condition in before}
    return [one for one in after if _is_news(known.get(one["type"]), one)]


def _is_news(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> bool:
    if after["type"] == ConditionType.READY:
        was_ready = before is not None and before["status"] == Status.TRUE
        return bool(was_ready != (after["status"] == Status.TRUE))
    if before is None:
        return bool(after["status"] != Status.UNKNOWN)
    return any(before[name] != after[name] for name in ("status", "reason"))
