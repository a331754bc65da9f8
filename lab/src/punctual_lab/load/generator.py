"""Plays a trace against a server, open loop: the sending times depend on the trace alone."""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from punctual_admission.outcomes import Outcome
from punctual_lab.load.client import Attempt, build_body, build_session, send
from punctual_lab.load.retry import NoRetry, Refusal
from punctual_lab.load.rows import RequestRow
from punctual_lab.measures import quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import aiohttp

    from punctual_lab.load.client import Target
    from punctual_lab.load.retry import RetryBehaviour
    from punctual_lab.traces import TraceRequest

MAXIMUM_LAG_P99_MS = 20.0
RETRIED_OUTCOMES = frozenset({Outcome.REFUSED, Outcome.EXPIRED})


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The rows of a run in trace order, its wall time, and how late the generator was."""

    rows: tuple[RequestRow, ...]
    wall_seconds: float
    lag_ms_p99: float
    lag_ms_max: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what a reader must know before trusting the rows."""
        told = (describe_lag(self.lag_ms_p99), describe_failures(self.rows))
        return tuple(text for text in told if text is not None)


def describe_lag(lag_ms_p99: float) -> str | None:
    """Say that the generator fell behind, if it did."""
    if lag_ms_p99 <= MAXIMUM_LAG_P99_MS:
        return None
    return (
        f"the load generator sent its requests up to {lag_ms_p99:.1f} ms (p99) after "
        f"their time; above {MAXIMUM_LAG_P99_MS:.0f} ms the load is not the planned one"
    )


def describe_failures(rows: Sequence[RequestRow]) -> str | None:
    """Say how many requests failed and how the first did, if any."""
    failed = [row for row in rows if row.outcome is Outcome.FAILED]
    if not failed:
        return None
    first = failed[0]
    return (
        f"{len(failed)} of {len(rows)} requests failed; the first, number {first.index}, with "
        f"status {first.status}: {first.error}"
    )


async def run_load(
    trace: Sequence[TraceRequest],
    target: Target,
    *,
    retry: RetryBehaviour | None = None,
    session: aiohttp.ClientSession | None = None,
    on_row: Callable[[RequestRow], None] | None = None,
) -> LoadResult:
    """Send each request of the trace at its time and wait until all have ended.

    `on_row` is called as each request ends. Without a `session` a fresh one is made and closed.
    """
    if session is None:
        async with build_session() as own:
            return await run_load(trace, target, retry=retry, session=own, on_row=on_row)
    run = _Run(target, retry or NoRetry(), session, on_row)
    with _quiet_collector():
        return await run.play(trace)


@dataclass(slots=True)
class _Run:
    target: Target
    retry: RetryBehaviour
    session: aiohttp.ClientSession
    on_row: Callable[[RequestRow], None] | None
    zero: float = 0.0

    async def play(self, trace: Sequence[TraceRequest]) -> LoadResult:
        bodies = [build_body(request, self.target) for request in trace]
        self.zero = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = []
            for request, body in zip(trace, bodies, strict=True):
                await self._wait_until(request.at_seconds)
                tasks.append(group.create_task(self._serve(request, body)))
        rows = tuple(task.result() for task in tasks)
        lags = sorted(row.lag_ms for row in rows)
        return LoadResult(
            rows=rows,
            wall_seconds=self._now(),
            lag_ms_p99=quantile(lags, 0.99) or 0.0,
            lag_ms_max=lags[-1] if lags else 0.0,
        )

    async def _serve(self, request: TraceRequest, body: bytes) -> RequestRow:
        first_sent = self._now()
        self.retry.first_attempt()
        for attempts in range(1, 1_000_000):
            sent = self._now()
            attempt = await send(self.session, self.target, request, body)
            delay = self._delay_after(attempt, attempts)
            if delay is None:
                break
            await asyncio.sleep(delay)
        total_ms = (sent - first_sent) * 1e3 + attempt.latency_ms
        row = _build_row(request, attempt, first_sent, total_ms, attempts)
        if self.on_row is not None:
            self.on_row(row)
        return row

    def _delay_after(self, attempt: Attempt, attempts: int) -> float | None:
        if attempt.outcome not in RETRIED_OUTCOMES:
            return None
        advice = attempt.advice
        return self.retry.delay_seconds(
            Refusal(
                attempt=attempts,
                retry_after_seconds=None if advice is None else advice.retry_after_seconds,
                should_retry=None if advice is None else advice.should_retry,
            )
        )

    async def _wait_until(self, at_seconds: float) -> None:
        remaining = at_seconds - self._now()
        if remaining > 0:
            await asyncio.sleep(remaining)

    def _now(self) -> float:
        return time.perf_counter() - self.zero


def _build_row(
    request: TraceRequest, attempt: Attempt, first_sent: float, total_ms: float, attempts: int
) -> RequestRow:
    promise, advice = attempt.promise, attempt.advice
    seconds = None if advice is None else advice.retry_after_seconds
    return RequestRow(
        index=request.index,
        planned_at=request.at_seconds,
        sent_at=first_sent,
        deadline_ms=request.deadline_ms,
        prompt_tokens=request.prompt_tokens,
        tokens_wanted=request.max_tokens,
        tokens_received=attempt.tokens_received,
        outcome=attempt.outcome,
        status=attempt.status,
        latency_ms=attempt.latency_ms,
        total_ms=total_ms,
        attempts=attempts,
        ttft_ms=attempt.ttft_ms,
        predicted_ms=None if promise is None else promise.predicted_ms,
        predicted_wait_ms=None if promise is None else promise.predicted_wait_ms,
        queue_ms=None if promise is None else promise.queue_ms,
        service_ms=None if promise is None else promise.service_ms,
        refusal_type=attempt.refusal_type,
        refusal_code=attempt.refusal_code,
        retry_after_ms=None if seconds is None else seconds * 1e3,
        request_id=None if promise is None else promise.request_id,
        tier=request.tier,
        error=attempt.error,
    )


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """Keep what exists already out of garbage collection, whose pauses would read as latency."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
