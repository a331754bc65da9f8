"""What headers say: the promise made at arrival, and a refusal's advice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_DURATION = re.compile(r"(\w+)\s*;\s*dur=([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Promise:
    """Predicted and measured milliseconds of one request; `None` where a header is absent."""

    predicted_ms: float | None
    predicted_wait_ms: float | None
    queue_ms: float | None
    service_ms: float | None
    deadline_ms: float | None
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Advice:
    """When a refused client may come back; `None` where a header is absent."""

    retry_after_seconds: float | None
    should_retry: bool | None


def read_promise(headers: Mapping[str, str]) -> Promise:
    """Read the prediction, the timing, the effective deadline and the id."""
    timing = dict(_DURATION.findall(headers.get("Server-Timing", "")))
    wait = _number(headers.get("X-Queue-Predict-Wait"))
    return Promise(
        predicted_ms=_number(headers.get("X-Punctual-Predicted-Ms")),
        predicted_wait_ms=None if wait is None else wait * 1e3,
        queue_ms=_number(timing.get("queue")),
        service_ms=_number(timing.get("service")),
        deadline_ms=_number(headers.get("X-Punctual-Deadline-Ms")),
        request_id=headers.get("X-Request-Id"),
    )


def read_advice(headers: Mapping[str, str]) -> Advice:
    """Read `retry-after-ms`, else `Retry-After` in seconds, and `x-should-retry`."""
    milliseconds = _number(headers.get("retry-after-ms"))
    seconds = _number(headers.get("Retry-After"))
    word = headers.get("x-should-retry")
    return Advice(
        retry_after_seconds=seconds if milliseconds is None else milliseconds / 1e3,
        should_retry=None if word is None else word.strip().lower() == "true",
    )


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
