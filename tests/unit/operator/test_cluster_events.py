"""Events for conditions that changed."""

from __future__ import annotations

from typing import Any

from punctual_operator.cluster_events import MAXIMUM_MESSAGE, build_event


def condition(**changes: str) -> dict[str, Any]:
    base = {"type": "BackendsDiscovered", "status": "False", "reason": "NoPods", "message": "none"}
    return base | changes


def test_event_says_which_condition_and_why(make_policy: Any) -> None:
    event = build_event(make_policy(), condition(), "2026-01-01T00:00:00Z")
    assert event is not None
    assert (event["type"], event["reason"]) == ("Warning", "NoPods")
    assert event["message"] == "BackendsDiscovered: none"
    assert event["involvedObject"]["name"] == "gpt2"


def test_good_news_is_normal(make_policy: Any) -> None:
    event = build_event(make_policy(), condition(status="True"), "2026-01-01T00:00:00Z")
    assert event is not None
    assert event["type"] == "Normal"


def test_start_and_change_of_a_gateway_are_no_warning(make_policy: Any) -> None:
    for reason in ("Starting", "Pending"):
        event = build_event(make_policy(), condition(reason=reason), "2026-01-01T00:00:00Z")
        assert event is not None
        assert event["type"] == "Normal"


def test_long_message_is_cut_to_what_the_server_takes(make_policy: Any) -> None:
    event = build_event(make_policy(), condition(message="x" * 5000), "2026-01-01T00:00:00Z")
    assert event is not None
    assert len(event["message"]) == MAXIMUM_MESSAGE


def test_feature_that_is_not_used_is_no_event(make_policy: Any) -> None:
    assert build_event(make_policy(), condition(reason="NotConfigured"), "now") is None
