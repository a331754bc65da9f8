"""How findings become the conditions of a status."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual_operator.conditions import (
    NEEDED,
    ConditionType,
    Finding,
    Status,
    merge,
    summarise,
    transitions,
)
from punctual_operator.crd import status_schema

EARLIER, NOW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def finding(kind: ConditionType, status: Status, reason: str = "Because") -> Finding:
    return Finding(kind, status, reason, "a sentence")


def condition(kind: ConditionType, status: Status, reason: str = "Because") -> dict[str, Any]:
    return merge([finding(kind, status, reason)], [], 1, EARLIER)[0]


statuses = st.sampled_from(list(Status))


@given(st.tuples(statuses, statuses, statuses), statuses)
def test_ready_is_the_worst_of_what_it_needs(
    needed: tuple[Status, Status, Status], other: Status
) -> None:
    findings = [finding(kind, status) for kind, status in zip(NEEDED, needed, strict=True)]
    findings.append(finding(ConditionType.AUTOSCALING_ACTIVE, other))
    ranks = {Status.FALSE: 0, Status.UNKNOWN: 1, Status.TRUE: 2}
    assert summarise(findings).status is min(needed, key=ranks.__getitem__)


def test_ready_gives_the_reason_of_the_condition_it_follows() -> None:
    findings = [
        finding(ConditionType.GATEWAY_AVAILABLE, Status.UNKNOWN, "Creating"),
        finding(ConditionType.BACKENDS_DISCOVERED, Status.FALSE, "NoPods"),
    ]
    ready = summarise(findings)
    assert (ready.reason, ready.message) == ("NoPods", "BackendsDiscovered: a sentence")


def test_transition_time_stays_while_the_status_stays() -> None:
    before = [condition(ConditionType.READY, Status.TRUE)]
    after = merge([finding(ConditionType.READY, Status.TRUE, "Other")], before, 2, NOW)
    assert after[0]["lastTransitionTime"] == EARLIER
    assert (after[0]["reason"], after[0]["observedGeneration"]) == ("Other", 2)


def test_transition_time_is_new_with_a_new_status() -> None:
    before = [condition(ConditionType.READY, Status.TRUE)]
    after = merge([finding(ConditionType.READY, Status.FALSE)], before, 1, NOW)
    assert after[0]["lastTransitionTime"] == NOW


def test_merging_twice_changes_nothing() -> None:
    findings = [finding(kind, Status.TRUE) for kind in ConditionType]
    once = merge(findings, [], 1, EARLIER)
    assert merge(findings, once, 1, NOW) == once


def test_conditions_are_sorted_by_type() -> None:
    found = merge([finding(kind, Status.TRUE) for kind in ConditionType], [], 1, NOW)
    assert [one["type"] for one in found] == sorted(str(kind) for kind in ConditionType)


GATEWAY = ConditionType.GATEWAY_AVAILABLE


@pytest.mark.parametrize(
    ("kind", "before", "after", "told"),
    [
        (GATEWAY, None, (Status.FALSE, "Starting"), True),
        (GATEWAY, None, (Status.UNKNOWN, "Creating"), False),
        (GATEWAY, (Status.FALSE, "Starting"), (Status.FALSE, "Starting"), False),
        (GATEWAY, (Status.FALSE, "Starting"), (Status.FALSE, "Crashing"), True),
        (GATEWAY, (Status.FALSE, "Starting"), (Status.TRUE, "Available"), True),
        (ConditionType.READY, None, (Status.FALSE, "NoPods"), False),
        (ConditionType.READY, (Status.FALSE, "NoPods"), (Status.UNKNOWN, "Asking"), False),
        (ConditionType.READY, (Status.UNKNOWN, "Asking"), (Status.TRUE, "Serving"), True),
        (ConditionType.READY, (Status.TRUE, "Serving"), (Status.FALSE, "NoPods"), True),
    ],
)
def test_a_transition_is_told_once(
    kind: ConditionType,
    before: tuple[Status, str] | None,
    after: tuple[Status, str],
    told: bool,
) -> None:
    earlier = [condition(kind, *before)] if before else []
    assert bool(transitions(earlier, [condition(kind, *after)])) is told


@given(st.text(max_size=1100), st.sampled_from(["", "told", "x" * 40_000]))
def test_whatever_others_say_fits_the_definition(reason: str, message: str) -> None:
    told = Finding(ConditionType.GATEWAY_AVAILABLE, Status.FALSE, reason, message)
    (found,) = merge([told], [], 1, NOW)
    fields = status_schema()["properties"]["conditions"]["items"]["properties"]
    assert re.search(fields["reason"]["pattern"], found["reason"])
    assert len(found["reason"]) <= fields["reason"]["maxLength"]
    assert len(found["message"]) <= fields["message"]["maxLength"]
    assert found["message"][:9] == message[:9]
