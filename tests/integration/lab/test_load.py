"""The load generator against real servers: outcomes, rows, open loop, retries."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from punctual_admission.outcomes import Outcome
from punctual_lab.load.client import Target
from punctual_lab.load.generator import LoadResult, run_load
from punctual_lab.load.retry import ObeyRetryAfter
from punctual_lab.load.rows import RequestRow, read_rows, write_rows
from punctual_lab.load.summary import summarise
from punctual_lab.traces import TraceRequest, build_burst_trace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Serve = Callable[[Handler], Awaitable[str]]


def one(tokens: int = 3, deadline_ms: int | None = 60_000) -> tuple[TraceRequest, ...]:
    """Build a trace of one request."""
    return (TraceRequest(0, 0.0, 4, tokens, deadline_ms),)


def completion(tokens: int, reason: str = "length") -> dict[str, Any]:
    """Build a completion's body."""
    return {
        "choices": [{"index": 0, "text": "a", "finish_reason": reason}],
        "usage": {"completion_tokens": tokens},
    }


def refusal(status: int, kind: str, code: str, **headers: str) -> web.Response:
    """Build a refusal in the gateway's form."""
    error = {"message": "no", "type": kind, "code": code, "param": None}
    return web.json_response({"error": error}, status=status, headers=headers)


def answering(response: Callable[[], web.Response]) -> Handler:
    """Answer each request with a fresh response."""

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        return response()

    return handle


def streaming(*events: str, end: bool = True) -> Handler:
    """Stream the events; without `end` the connection is cut after them."""

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(f"data: {event}\n\n".encode())
        if not end and request.transport is not None:
            request.transport.abort()
        return response

    return handle


def chunk(reason: str | None = None) -> str:
    """Build one token's event."""
    return json.dumps({"choices": [{"index": 0, "text": "a", "finish_reason": reason}]})


async def play_one(url: str, *, stream: bool = False, **options: Any) -> RequestRow:
    """Send one request and return its row."""
    result = await run_load(one(**options), Target(url, "lab", stream=stream))
    return result.rows[0]


async def test_an_answer_in_time_is_good_and_carries_the_promise(serve: Serve) -> None:
    """Tokens, prediction and timing are read from a whole answer."""
    headers = {
        "Server-Timing": "queue;dur=12.5, service;dur=80",
        "X-Queue-Predict-Wait": "0.012",
        "X-Punctual-Predicted-Ms": "95.5",
        "X-Request-Id": "abc",
    }
    url = await serve(answering(lambda: web.json_response(completion(3), headers=headers)))
    row = await play_one(url)
    assert (row.outcome, row.status, row.tokens_received) == (Outcome.GOOD, 200, 3)
    assert (row.predicted_ms, row.predicted_wait_ms) == (95.5, 12.0)
    assert (row.queue_ms, row.service_ms, row.request_id) == (12.5, 80.0, "abc")


async def test_an_answer_after_its_deadline_is_late(serve: Serve) -> None:
    """A complete answer that took longer than the deadline is late."""

    async def handle(request: web.Request) -> web.StreamResponse:
        deadline_ms = int(request.headers["X-Deadline-Ms"])
        await asyncio.sleep(2 * deadline_ms / 1e3)
        return web.json_response(completion(3))

    row = await play_one(await serve(handle), deadline_ms=20)
    assert row.outcome is Outcome.LATE
    assert row.latency_ms > 20


@pytest.mark.parametrize(
    ("status", "kind", "code", "outcome"),
    [
        (503, "overloaded", "deadline_unreachable", Outcome.REFUSED),
        (503, "no_capacity", "pool_exhausted", Outcome.REFUSED),
        (429, "rate_limited", "client_quota_exceeded", Outcome.REFUSED),
        (503, "deadline_exceeded", "deadline_exceeded", Outcome.EXPIRED),
        (503, "overloaded", "displaced", Outcome.EXPIRED),
        (504, "deadline_exceeded", "deadline_exceeded", Outcome.LATE),
        (400, "invalid_request_error", "bad", Outcome.FAILED),
        (502, "upstream_error", "reset", Outcome.FAILED),
    ],
)
async def test_each_refusal_has_its_outcome(
    serve: Serve, status: int, kind: str, code: str, outcome: Outcome
) -> None:
    """Refused at arrival, dropped in the queue, stopped while running and broken stay apart."""
    url = await serve(answering(lambda: refusal(status, kind, code)))
    row = await play_one(url)
    assert (row.outcome, row.status) == (outcome, status)
    assert (row.refusal_type, row.refusal_code) == (kind, code)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error": "text"}', b"[]"])
async def test_a_503_without_the_envelope_is_a_refusal(serve: Serve, body: bytes) -> None:
    """Any server's 503 counts, whatever its body."""
    url = await serve(answering(lambda: web.Response(status=503, body=body)))
    row = await play_one(url)
    assert (row.outcome, row.refusal_code) == (Outcome.REFUSED, None)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"choices": []}'])
async def test_a_200_that_is_no_completion_is_a_failure(serve: Serve, body: bytes) -> None:
    """A run goes on whatever a server sends."""
    row = await play_one(await serve(answering(lambda: web.Response(body=body))))
    assert (row.outcome, row.status) == (Outcome.FAILED, None)
    assert row.error is not None


async def test_a_streamed_answer_counts_its_tokens(serve: Serve) -> None:
    """One event is one token, the first gives the time to first token."""
    url = await serve(streaming(chunk(), chunk(), chunk("length"), "[DONE]"))
    row = await play_one(url, stream=True)
    assert (row.outcome, row.tokens_received) == (Outcome.GOOD, 3)
    assert row.ttft_ms is not None
    assert row.ttft_ms <= row.latency_ms


@pytest.mark.parametrize(
    ("events", "end", "outcome"),
    [
        ((chunk(), chunk("deadline"), "[DONE]"), True, Outcome.LATE),
        ((chunk(), chunk("length")), True, Outcome.FAILED),
        ((chunk(),), False, Outcome.FAILED),
        ((chunk(), '{"error": {"type": "upstream_error", "message": "x"}}'), True, Outcome.FAILED),
        ((chunk(), '{"error": {"type": "deadline_exceeded"}}'), True, Outcome.LATE),
        ((chunk(), "{broken"), True, Outcome.FAILED),
        ((chunk(), "[]"), True, Outcome.FAILED),
        ((chunk(), '{"error": "text"}'), True, Outcome.FAILED),
    ],
)
async def test_a_stream_that_is_cut_is_not_good(
    serve: Serve, events: tuple[str, ...], end: bool, outcome: Outcome
) -> None:
    """A stream without its end mark, with an error event or cut at the deadline is told apart."""
    row = await play_one(await serve(streaming(*events, end=end)), stream=True)
    assert row.outcome is outcome


async def test_a_server_that_is_not_there_is_a_failure() -> None:
    """A refused connection ends the request as failed, with the error kept."""
    row = await play_one("http://127.0.0.1:9")
    assert (row.outcome, row.status) == (Outcome.FAILED, None)
    assert row.error is not None


async def test_an_impatient_client_leaves(serve: Serve) -> None:
    """A client whose patience ends closes the connection and counts as cancelled."""
    left = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        raise AssertionError

    target = Target(await serve(handle), "lab", give_up_seconds=0.05)
    result = await run_load(one(), target)
    assert result.rows[0].outcome is Outcome.CANCELLED
    await asyncio.wait_for(left.wait(), 10)


async def test_requests_leave_at_their_times_whatever_happens_to_others(serve: Serve) -> None:
    """More requests than any connection limit are open at the same time."""
    all_here = asyncio.Barrier(150)

    async def handle(request: web.Request) -> web.StreamResponse:
        await all_here.wait()
        return web.json_response(completion(3))

    trace = build_burst_trace(count=150, seed=1, deadline_ms=60_000)
    result = await run_load(trace, Target(await serve(handle), "lab"))
    assert {row.outcome for row in result.rows} == {Outcome.GOOD}
    assert [row.index for row in result.rows] == list(range(150))


async def test_a_later_request_is_not_sent_early(serve: Serve) -> None:
    """A request waits for its time."""
    url = await serve(answering(lambda: web.json_response(completion(3))))
    trace = (TraceRequest(0, 0.0, 4, 3, None), TraceRequest(1, 0.2, 4, 3, None))
    started = time.perf_counter()
    result = await run_load(trace, Target(url, "lab"))
    assert time.perf_counter() - started >= 0.2
    assert result.rows[1].sent_at >= 0.2
    assert result.rows[1].lag_ms >= 0


async def test_an_obedient_client_comes_back_after_the_time_it_was_told(serve: Serve) -> None:
    """A refusal with retry-after-ms is tried again, and the row says how often."""
    answers = iter([refusal(503, "overloaded", "x", **{"retry-after-ms": "30"})])

    def respond() -> web.Response:
        return next(answers, None) or web.json_response(completion(3))

    url = await serve(answering(respond))
    result = await run_load(one(), Target(url, "lab"), retry=ObeyRetryAfter())
    row = result.rows[0]
    assert (row.outcome, row.attempts) == (Outcome.GOOD, 2)
    assert row.total_ms >= row.latency_ms + 30


async def test_rows_survive_the_file(serve: Serve, tmp_path: Path) -> None:
    """Rows read back equal the rows written, and a broken line is named."""
    url = await serve(answering(lambda: refusal(503, "overloaded", "x")))
    result = await run_load(one(), Target(url, "lab"))
    path = tmp_path / "run" / "rows.jsonl"
    write_rows(path, result.rows)
    assert tuple(read_rows(path)) == result.rows
    path.write_text(path.read_text() + '{"index": 1}\n')
    with pytest.raises(ValueError, match="line 2: not a request row"):
        read_rows(path)


async def test_the_summary_counts_each_outcome_and_class(serve: Serve) -> None:
    """Counts add up to the total, and quantiles are over the requests that they name."""
    answers = iter([web.json_response(completion(3)), refusal(503, "overloaded", "x")])
    url = await serve(answering(lambda: next(answers)))
    trace = (TraceRequest(0, 0.0, 4, 3, None), TraceRequest(1, 0.2, 4, 64, None))
    summary = summarise((await run_load(trace, Target(url, "lab"))).rows)
    assert (summary["good"], summary["refused"], summary["total"]) == (1, 1, 2)
    assert sum(summary[outcome.value] for outcome in Outcome) == 2
    assert summary["by_tokens"] == {
        "3": {"offered": 1, "good": 1},
        "64": {"offered": 1, "good": 0},
    }
    assert summary["refusal_ms"]["p50"] > 0
    assert summary["good_tokens"] == 3


async def test_failures_are_a_warning_that_names_the_first(serve: Serve) -> None:
    """A run whose requests failed says how many and how."""
    url = await serve(answering(lambda: refusal(500, "server_error", "internal_error")))
    (warning,) = (await run_load(one(), Target(url, "lab"))).warnings
    assert warning.startswith("1 of 1 requests failed; the first, number 0, with status 500: no")


def test_a_generator_that_falls_behind_says_so() -> None:
    """A lag above the bound is a warning with its figures; a small one is none."""
    assert LoadResult((), 1.0, lag_ms_p99=5.0, lag_ms_max=50.0).warnings == ()
    (warning,) = LoadResult((), 1.0, lag_ms_p99=25.0, lag_ms_max=50.0).warnings
    assert "25.0 ms" in warning
