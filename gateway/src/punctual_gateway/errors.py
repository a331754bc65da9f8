"""How everything that is not an answer looks: status, type, code, message, headers.

One table for the reasons a request is turned away, one for the outcomes; tests hold that both are
complete. Bodies are OpenAI's error envelope with one extra member, `punctual`, that holds the
numbers behind the decision (milliseconds, GPU-milliseconds, counts).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import orjson

from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import Policy
from punctual_admission.retry_after import header_seconds
from punctual_admission.ticket import CounterOffer, Prediction, Refusal, Ticket

OVERLOADED = "overloaded"
DEADLINE_EXCEEDED = "deadline_exceeded"
RATE_LIMITED = "rate_limited"
NO_CAPACITY = "no_capacity"
INVALID_REQUEST = "invalid_request_error"
UPSTREAM_ERROR = "upstream_error"
SERVER_ERROR = "server_error"

BY_POLICY = 0
"""The status is the policy's `refusals.overloadStatus`."""


@dataclass(frozen=True, slots=True)
class Face:
    """Type, status and sentence of one reason."""

    kind: str
    status: int
    message: str


REASONS: dict[Reason, Face] = {
    Reason.QUEUE_FULL: Face(OVERLOADED, BY_POLICY, "as many requests wait as may wait"),
    Reason.WORK_LIMIT: Face(OVERLOADED, BY_POLICY, "as much work waits as may wait"),
    Reason.DEADLINE_UNREACHABLE: Face(
        OVERLOADED, BY_POLICY, "the answer would not be ready by the deadline"
    ),
    Reason.POOL_HEADROOM_EXHAUSTED: Face(
        OVERLOADED, BY_POLICY, "the pool has as much work in flight as it may have"
    ),
    Reason.MEMORY_EXHAUSTED: Face(
        OVERLOADED, BY_POLICY, "no pod has memory for this prompt and answer"
    ),
    Reason.TIER_SHARE_EXHAUSTED: Face(
        OVERLOADED, BY_POLICY, "the remaining capacity is reserved for others"
    ),
    Reason.SHORTER_FIRST: Face(
        OVERLOADED, BY_POLICY, "under this load the remaining capacity goes to shorter requests"
    ),
    Reason.POOL_EXHAUSTED: Face(NO_CAPACITY, 503, "no model pod is ready"),
    Reason.DRAINING: Face(NO_CAPACITY, 503, "this gateway is shutting down"),
    Reason.CLIENT_QUOTA_EXCEEDED: Face(RATE_LIMITED, 429, "the client's quota is used up"),
    Reason.DEADLINE_EXCEEDED: Face(
        DEADLINE_EXCEEDED, 503, "dropped from the queue: the deadline could no longer be met"
    ),
    Reason.DISPLACED: Face(
        DEADLINE_EXCEEDED, 503, "dropped from the queue so that more requests are on time"
    ),
}

OUTCOMES: dict[Outcome, int | None] = {
    Outcome.GOOD: 200,
    Outcome.LATE: 504,
    Outcome.REFUSED: None,
    Outcome.EXPIRED: None,
    Outcome.FAILED: 502,
    Outcome.CANCELLED: 499,
}
"""Status where nothing has been sent yet; None: by reason. A late answer in full is still a 200."""


class RequestError(Exception):
    """The request is wrong; nothing was decided about it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Failure:
    """A complete answer that is not a success."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def envelope(message: str, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """OpenAI's error object as JSON."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return orjson.dumps({"error": error})


def refusal(refused: Refusal, policy: Policy) -> Failure:
    """The answer to a request that was turned away at arrival."""
    face = REASONS[refused.reason]
    prediction, after = refused.prediction, refused.retry_after
    milliseconds = max(round(after * 1000), 1)
    numbers = f'{describe(prediction)},"retry_after_ms":{milliseconds}'
    if policy.offers:
        numbers += _describe_offer(refused.offer)
    headers = (
        ("Retry-After", str(header_seconds(after))),
        ("retry-after-ms", str(milliseconds)),
        ("X-Queue-Predict-Wait", f"{prediction.wait:.4f}"),
        ("x-should-retry", "true" if refused.retry_may_help else "false"),
    )
    status = face.status or policy.refusals.overload_status
    body = _decided(_sentence(face, refused), face.kind, refused.reason, numbers)
    return Failure(status, headers, body)


def _sentence(face: Face, refused: Refusal) -> str:
    if refused.reason is not Reason.DEADLINE_UNREACHABLE:
        return face.message
    prediction = refused.prediction
    needed = prediction.spent + prediction.sojourn * prediction.margin
    return (
        f"{face.message}: predicted {needed * 1000:.0f} ms, allowed {prediction.budget * 1000:.0f}"
    )


def dropped(ticket: Ticket, now: float) -> Failure:
    """The answer to a request that was admitted and then dropped from the queue."""
    reason = ticket.reason or Reason.DEADLINE_EXCEEDED
    face = REASONS[reason]
    waited = (now - ticket.request.arrival) * 1000
    numbers = f'{describe(ticket.prediction)},"waited_ms":{waited:.3f}'
    headers = (
        ("Retry-After", "1"),
        ("retry-after-ms", "1000"),
        ("X-Queue-Predict-Wait", f"{ticket.prediction.wait:.4f}"),
        ("x-should-retry", "true"),
    )
    body = _decided(face.message, face.kind, reason, numbers)
    return Failure(face.status, headers, body)


def late(ticket: Ticket, now: float) -> Failure:
    """The answer to a request that was cut at its deadline before anything was sent."""
    elapsed = (now - ticket.request.arrival) * 1000
    numbers = (
        f'{describe(ticket.prediction)},"elapsed_ms":{elapsed:.3f},'
        f'"generated_tokens":{ticket.generated}'
    )
    message = "the deadline passed while the answer was being generated"
    body = _decided(message, DEADLINE_EXCEEDED, Reason.DEADLINE_EXCEEDED, numbers)
    return Failure(504, (("x-should-retry", "false"),), body)


def failed(message: str, code: str) -> Failure:
    """The answer to a request whose pod broke."""
    return Failure(502, (("x-should-retry", "true"),), envelope(message, UPSTREAM_ERROR, code))


def invalid(error: RequestError) -> Failure:
    """The answer to a request that is wrong."""
    body = envelope(str(error), INVALID_REQUEST, error.code, error.param)
    return Failure(error.status, error.headers, body)


def describe(prediction: Prediction) -> str:
    """The numbers behind a decision as the inside of a JSON object.

    Written out, because a refusal is made of little else and may not cost more than the work that
    it saves: milliseconds (GPU-milliseconds for the backlog) and counts.
    """
    p = prediction
    return (
        f'"predicted_wait_ms":{p.wait * 1000:.3f},"predicted_service_ms":{p.service * 1000:.3f},'
        f'"predicted_ms":{(p.spent + p.sojourn) * 1000:.3f},"margin":{p.margin:.4f},'
        f'"deadline_ms":{p.budget * 1000:.3f},"spent_ms":{p.spent * 1000:.3f},'
        f'"backlog_gpu_ms":{p.backlog * 1000:.3f},"pods":{p.pods},"queued":{p.queued},'
        f'"running":{p.running}'
    )


def _describe_offer(offer: CounterOffer | None) -> str:
    """What would be admitted instead; null where nothing of the kind would."""
    tokens = None if offer is None else offer.output_tokens
    budget = None if offer is None or offer.budget is None else math.ceil(offer.budget * 1000)
    shown = ("null" if value is None else str(value) for value in (tokens, budget))
    return ',"max_tokens_on_time":{},"feasible_deadline_ms":{}'.format(*shown)


def _decided(message: str, kind: str, reason: Reason, numbers: str) -> bytes:
    """An envelope with numbers; the words are ours and need no escapes."""
    return (
        f'{{"error":{{"message":"{message}","type":"{kind}","param":null,'
        f'"code":"{reason.value}","punctual":{{{numbers}}}}}}}'
    ).encode()
