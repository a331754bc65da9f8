"""The table of refusals is complete, and what it makes is OpenAI's envelope."""

from __future__ import annotations

import orjson
import pytest

from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import Policy, policy_from_spec
from punctual_admission.ticket import Prediction, Refusal, Request, Ticket
from punctual_gateway import errors
from punctual_gateway.metrics import Metrics, reasons_of
from punctual_gateway.openapi import build_document

POLICY: Policy = policy_from_spec({"model": "lab"})
PREDICTION = Prediction(
    wait=1.25, service=0.5, margin=1.08, budget=1.0, spent=0.001, backlog=3.0, pods=2, queued=7,
    running=8,
)  # fmt: skip
KINDS = {
    "overloaded", "deadline_exceeded", "rate_limited", "invalid_request_error", "no_capacity",
}  # fmt: skip


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_face(reason: Reason) -> None:
    failure = errors.refusal(Refusal(reason, PREDICTION, 2.3, retry_may_help=True), POLICY)
    error = orjson.loads(failure.body)["error"]
    headers = dict(failure.headers)
    assert failure.status in (429, 503)
    assert error["type"] in KINDS
    assert error["code"] == reason.value
    assert error["punctual"]["predicted_wait_ms"] == 1250
    assert error["punctual"]["retry_after_ms"] == 2300
    assert headers["Retry-After"] == "3"
    assert headers["retry-after-ms"] == "2300"
    assert headers["x-should-retry"] == "true"
    assert headers["X-Queue-Predict-Wait"] == "1.2500"


def test_quota_is_a_429_and_overload_is_what_the_policy_says() -> None:
    assert errors.REASONS[Reason.CLIENT_QUOTA_EXCEEDED].status == 429
    policy = policy_from_spec({"model": "lab", "refusals": {"overloadStatus": 429}})
    refused = Refusal(Reason.QUEUE_FULL, PREDICTION, 0.001, retry_may_help=False)
    failure = errors.refusal(refused, policy)
    assert failure.status == 429
    assert dict(failure.headers)["x-should-retry"] == "false"
    assert dict(failure.headers)["retry-after-ms"] == "1"


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_a_status_and_is_counted(outcome: Outcome) -> None:
    assert outcome in errors.OUTCOMES
    counted = Metrics().requests
    assert all((outcome, reason) in counted for reason in reasons_of(outcome))


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_counted_and_documented(reason: Reason) -> None:
    counted = {known for _, known in Metrics().requests}
    assert reason in counted
    error = build_document()["components"]["schemas"]["Error"]["properties"]["error"]
    assert reason.value in error["properties"]["code"]["examples"]


def test_words_in_the_table_need_no_escapes() -> None:
    for face in errors.REASONS.values():
        assert orjson.loads(orjson.dumps(face.message)) == face.message
        assert '"' not in face.message
        assert "\\" not in face.message


def test_dropped_and_late_carry_what_happened() -> None:
    ticket = Ticket(Request("r", 3, 8, 10.0, 12.0), 1, PREDICTION, 0.5, reason=Reason.DISPLACED)
    ticket.generated = 5
    dropped, late = errors.dropped(ticket, 11.5), errors.late(ticket, 12.5)
    assert orjson.loads(dropped.body)["error"]["code"] == "displaced"
    assert orjson.loads(dropped.body)["error"]["punctual"]["waited_ms"] == 1500
    assert late.status == 504
    assert orjson.loads(late.body)["error"]["punctual"]["generated_tokens"] == 5


def test_words_of_others_are_escaped() -> None:
    body = errors.failed('a "quoted" word', "upstream_error").body
    assert orjson.loads(body)["error"]["message"] == 'a "quoted" word'
