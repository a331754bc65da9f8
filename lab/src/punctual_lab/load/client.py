"""One attempt of one request over HTTP: send it, read the answer, say how it ended."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from punctual_admission.outcomes import Outcome, Reason
from punctual_lab.load.headers import read_advice, read_promise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from punctual_lab.load.headers import Advice, Promise
    from punctual_lab.traces import TraceRequest

REFUSAL_STATUSES = frozenset({429, 503})
DEADLINE_TYPE = "deadline_exceeded"
NO_COMPLETION = (ValueError, LookupError, TypeError, AttributeError)
"""What reading a body ends in that is no completion."""
DROPPED_CODES = frozenset({Reason.DEADLINE_EXCEEDED, Reason.DISPLACED})


@dataclass(frozen=True, slots=True)
class Target:
    """Where and how requests are sent.

    `give_up_seconds` is the client's patience: after it the client leaves (outcome `cancelled`).
    `headers` go with every request.
    """

    url: str
    model: str
    stream: bool = False
    give_up_seconds: float | None = None
    headers: Mapping[str, str] | None = None

    @property
    def completions_url(self) -> str:
        """Return the URL of the completions route."""
        return f"{self.url.rstrip('/')}/v1/completions"


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt ended. Durations in milliseconds from the moment it was sent."""

    outcome: Outcome
    latency_ms: float
    status: int | None = None
    tokens_received: int = 0
    ttft_ms: float | None = None
    promise: Promise | None = None
    advice: Advice | None = None
    refusal_type: str | None = None
    refusal_code: str | None = None
    error: str | None = None


@dataclass(slots=True)
class _Answer:
    """What an answer's body said; filled while it arrives."""

    tokens: int = 0
    first_at: float | None = None
    finish_reason: str | None = None
    complete: bool = False
    error: dict[str, Any] | None = None


def build_session() -> aiohttp.ClientSession:
    """Build the client session of a run: no limit on connections, no time-outs of its own."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15),
        timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    )


def build_body(request: TraceRequest, target: Target) -> bytes:
    """Build the JSON body: a prompt of token ids, greedy, and always the full number of tokens."""
    body: dict[str, Any] = {
        "model": target.model,
        "prompt": [1 + (request.index * 7 + i) % 250 for i in range(request.prompt_tokens)],
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    if target.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return orjson.dumps(body)


async def send(
    session: aiohttp.ClientSession, target: Target, request: TraceRequest, body: bytes
) -> Attempt:
    """Send one attempt and read its answer to the end; never raises for what a server may do."""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(target.give_up_seconds):
            return await _exchange(session, target, request, body, started)
    except TimeoutError:
        return Attempt(Outcome.CANCELLED, _ms_since(started), error="the client's patience ended")
    except (aiohttp.ClientError, OSError, *NO_COMPLETION) as error:
        return Attempt(Outcome.FAILED, _ms_since(started), error=repr(error))


async def _exchange(
    session: aiohttp.ClientSession,
    target: Target,
    request: TraceRequest,
    body: bytes,
    started: float,
) -> Attempt:
    headers = {"Content-Type": "application/json", **(target.headers or {})}
    if request.deadline_ms is not None:
        headers["X-Deadline-Ms"] = str(request.deadline_ms)
    if request.tier:
        headers["X-Punctual-Tier"] = request.tier
    async with session.post(target.completions_url, data=body, headers=headers) as response:
        if response.status != 200:
            payload = await response.read()
            return _read_refusal(response, payload, _ms_since(started))
        answer = await _read_answer(response)
        latency_ms = _ms_since(started)
        first = answer.first_at
        return Attempt(
            outcome=_judge(answer, latency_ms, request.deadline_ms),
            latency_ms=latency_ms,
            status=200,
            tokens_received=answer.tokens,
            ttft_ms=None if first is None else (first - started) * 1e3,
            promise=read_promise(response.headers),
            refusal_code=None if answer.error is None else answer.error.get("code"),
            error=_answer_error(answer),
        )


def _read_refusal(response: aiohttp.ClientResponse, payload: bytes, latency_ms: float) -> Attempt:
    error = _error_object(payload)
    kind = error.get("type")
    return Attempt(
        outcome=_judge_refusal(response.status, kind, error.get("code")),
        latency_ms=latency_ms,
        status=response.status,
        promise=read_promise(response.headers),
        advice=read_advice(response.headers),
        refusal_type=kind,
        refusal_code=error.get("code"),
        error=None if response.status in REFUSAL_STATUSES else error.get("message"),
    )


def _judge_refusal(status: int, kind: str | None, code: str | None) -> Outcome:
    """Tell refused at arrival from dropped in the queue, stopped while running, or broken."""
    if status == 504:
        return Outcome.LATE
    if status in REFUSAL_STATUSES:
        dropped = kind == DEADLINE_TYPE or code in DROPPED_CODES
        return Outcome.EXPIRED if dropped else Outcome.REFUSED
    return Outcome.FAILED


def _judge(answer: _Answer, latency_ms: float, deadline_ms: int | None) -> Outcome:
    if answer.error is not None:
        return Outcome.LATE if answer.error.get("type") == DEADLINE_TYPE else Outcome.FAILED
    if answer.finish_reason == "deadline":
        return Outcome.LATE
    if not answer.complete:
        return Outcome.FAILED
    in_time = deadline_ms is None or latency_ms <= deadline_ms
    return Outcome.GOOD if in_time else Outcome.LATE


def _answer_error(answer: _Answer) -> str | None:
    if answer.error is not None:
        return str(answer.error.get("message"))
    return None if answer.complete else "the answer ended before its end mark"


async def _read_answer(response: aiohttp.ClientResponse) -> _Answer:
    answer = _Answer()
    if response.content_type != "text/event-stream":
        _take_completion(answer, orjson.loads(await response.read()))
        return answer
    buffer = b""
    async for chunk in response.content.iter_any():
        *events, buffer = (buffer + chunk).split(b"\n\n")
        for event in events:
            _take_event(answer, event)
    return answer


def _take_completion(answer: _Answer, completion: dict[str, Any]) -> None:
    choice = completion["choices"][0]
    answer.finish_reason = choice.get("finish_reason")
    answer.tokens = int((completion.get("usage") or {}).get("completion_tokens", 0))
    answer.complete = True


def _take_event(answer: _Answer, event: bytes) -> None:
    data = event.removeprefix(b"data:").strip()
    if data == b"[DONE]":
        answer.complete = True
        return
    if not event.startswith(b"data:"):
        return
    chunk = orjson.loads(data)
    if "error" in chunk:
        answer.error = chunk["error"]
        return
    for choice in chunk.get("choices", ()):
        answer.first_at = answer.first_at or time.perf_counter()
        answer.tokens += 1
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason


def _error_object(payload: bytes) -> dict[str, Any]:
    try:
        error = orjson.loads(payload)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1e3
