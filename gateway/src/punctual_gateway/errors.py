"""How everything that is not an answer looks: status, type, code, message, headers.

One table for the reasons a request is turned away, one for the outcomes; tests hold that both are
complete. Bodies are OpenAI's error envelope with one extra member, `punctual`, that holds the
numbers behind the decision (milliseconds, GPU-milliseconds, counts).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import Policy
from punctual_admission.retry_after import header_seconds
from punctual_admission.ticket import Prediction, Refusal, Ticket

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
        self, status: int, message: str, *, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


@dataclass(frozen=True, slots=True)
class Failure:
    """A complete answer that is not a success."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def envelope(
    message: str,
    kind: str,
    code: str | None = None,
    param: str | None = None,
    numbers: dict[str, Any] | None = None,
) -> bytes:
    """OpenAI's error object as JSON."""
    error: dict[str, Any] = {"message": message, "type": kind, "param": param, "code": code}
    if numbers is not None:
        error["punctual"] = numbers
    return orjson.dumps({"error": error})


def refusal(refused: Refusal, policy: Policy) -> Failure:
    """The answer to a request that was turned away at arrival."""
    face = REASONS[refused.reason]
    prediction, after = refused.prediction, refused.retry_after
    numbers = describe(prediction)
    numbers["retry_after_ms"] = milliseconds = max(round(after * 1000), 1)
    headers = (
        ("Retry-After", str(header_seconds(after))),
        ("retry-after-ms", str(milliseconds)),
        ("X-Queue-Predict-Wait", f"{prediction.wait:.4f}"),
        ("x-should-retry", "true" if refused.retry_may_help else "false"),
    )
    status = face.status or policy.refusals.overload_status
    body = envelope(_sentence(face, refused), face.kind, refused.reason.value, None, numbers)
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
    numbers = describe(ticket.prediction) | {"waited_ms": _ms(now - ticket.request.arrival)}
    headers = (
        ("Retry-After", "1"),
        ("retry-after-ms", "1000"),
        ("X-Queue-Predict-Wait", f"{ticket.prediction.wait:.4f}"),
        ("x-should-retry", "true"),
    )
    body = envelope(face.message, face.kind, reason.value, None, numbers)
    return Failure(face.status, headers, body)


def late(ticket: Ticket, now: float) -> Failure:
    """The answer to a request that was cut at its deadline before anything was sent."""
    numbers = describe(ticket.prediction) | {
        "elapsed_ms": _ms(now - ticket.request.arrival),
        "generated_tokens": ticket.generated,
    }
    body = envelope(
        "the deadline passed while the answer was being generated",
        DEADLINE_EXCEEDED,
        Reason.DEADLINE_EXCEEDED.value,
        None,
        numbers,
    )
    return Failure(504, (("x-should-retry", "false"),), body)


def failed(message: str, code: str) -> Failure:
    """The answer to a request whose pod broke."""
    return Failure(502, (("x-should-retry", "true"),), envelope(message, UPSTREAM_ERROR, code))


def invalid(error: RequestError) -> Failure:
    """The answer to a request that is wrong."""
    body = envelope(str(error), INVALID_REQUEST, error.code, error.param)
    return Failure(error.status, (), body)


def describe(prediction: Prediction) -> dict[str, Any]:
    """The numbers behind a decision, as they appear in bodies."""
    return {
        "predicted_wait_ms": _ms(prediction.wait),
        "predicted_service_ms": _ms(prediction.service),
        "predicted_ms": _ms(prediction.spent + prediction.sojourn),
        "margin": round(prediction.margin, 4),
        "deadline_ms": _ms(prediction.budget),
        "spent_ms": _ms(prediction.spent),
        "backlog_gpu_ms": _ms(prediction.backlog),
        "pods": prediction.pods,
        "queued": prediction.queued,
        "running": prediction.running,
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
