"""Runs a comparison: one model server throughout, one fresh gateway a mode, the same trace for
each.

Beside each run the same sending times, a little later, go to a bare aiohttp handler that answers
a constant 503. Its refusals share client, machine and moment with the gateway's, so that the two
can be compared even on a busy machine.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from typing import TYPE_CHECKING

import orjson

from punctual_lab.aio import run_async
from punctual_lab.compare.plan import BURST_SIZE, BurstRun, Comparison, ComparisonPlan, ModeRun
from punctual_lab.gateway_stats import wait_idle
from punctual_lab.load.alone import PROBE_TOKENS, measure_service_times, probe_speed
from punctual_lab.load.client import Target, build_body, build_session, send
from punctual_lab.load.generator import run_load
from punctual_lab.load.rows import write_rows
from punctual_lab.load.wire import build_request, send_burst
from punctual_lab.policies import PREDICTIVE, build_policy, rotate_modes, write_policy
from punctual_lab.processes import find_free_port
from punctual_lab.progress import track_requests
from punctual_lab.traces import (
    TraceRequest,
    build_burst_trace,
    build_poisson_trace,
    fit_to_work,
    offered_seconds,
    rate_for_load,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import aiohttp
    from rich.console import Console

    from punctual_lab.load.generator import LoadResult
    from punctual_lab.load.rows import RequestRow
    from punctual_lab.load.wire import WireAnswer
    from punctual_lab.policies import ModeUnderTest
    from punctual_lab.processes import ServerProcess, Stack
    from punctual_lab.traces import Trace

SERVED_NAME = "lab"
BARE_OFFSET_SECONDS = 0.02
DRAWN = 3
"""So many times the plan's seconds are drawn, to be fitted to its load."""


def run_comparison(
    plan: ComparisonPlan, folder: Path, stack: Stack, console: Console
) -> Comparison:
    """Start the servers, run the modes (order rotated by the seed) and return what was found.

    Policies go into `folder`, and the rows of each mode as soon as it has run. The servers live in
    `stack`, whose owner stops them.
    """
    console.print(f"starting model server {plan.model}, {plan.slots} slot(s) ...")
    model = stack.start_model_server(
        model=plan.model, slots=plan.slots, served_name=SERVED_NAME, extra=plan.server_arguments
    )
    bare = start_bare_refuser(stack)
    direct = Target(model.url, SERVED_NAME)
    service = run_async(
        measure_service_times(
            direct,
            plan.mix.tokens,
            prompt_tokens=plan.prompt_tokens,
            repeats=plan.service_repeats,
        )
    )
    trace = build_plan_trace(plan, service)
    console.print(describe_service(service, trace, plan))
    bench = _Bench(plan, folder, stack, console, model, bare, service, trace)
    runs = {mode: bench.run_mode(mode) for mode in rotate_modes(plan.modes, plan.seed)}
    return Comparison(plan, service, trace, tuple(runs[mode] for mode in plan.modes))


def build_plan_trace(plan: ComparisonPlan, service_seconds: dict[int, float]) -> Trace:
    """Build the seeded trace that offers the plan's load at the measured service times."""
    drawn = build_poisson_trace(
        rate_per_second=rate_for_load(plan.load, plan.mix.mean_of(service_seconds)),
        duration_seconds=DRAWN * plan.seconds,
        seed=plan.seed,
        mix=plan.mix,
        prompt_tokens=plan.prompt_tokens,
        deadline_ms=plan.deadline_ms,
    )
    return fit_to_work(drawn, service_seconds, plan.load * plan.seconds, plan.seconds)


def describe_service(service: dict[int, float], trace: Trace, plan: ComparisonPlan) -> str:
    """Return one line: what a request costs alone and what the trace offers."""
    times = ", ".join(
        f"{tokens} tokens {seconds * 1e3:.0f} ms" for tokens, seconds in service.items()
    )
    return f"alone: {times}; trace: {len(trace)} requests in {plan.seconds:.0f} s, seed {plan.seed}"


def start_bare_refuser(stack: Stack) -> ServerProcess:
    """Start the bare handler that answers a constant 503."""
    port = find_free_port()
    argv = [sys.executable, "-m", "punctual_lab.load.bare_refuser", str(port)]
    return stack.launch("bare-503", argv, port=port)


def is_refused_at_arrival(answer: WireAnswer) -> bool:
    """Return whether a 503 turned the request away, rather than dropping it from the queue."""
    return answer.status == 503 and b'"deadline_exceeded"' not in answer.body


def read_spent_ms(answer: WireAnswer) -> float | None:
    """Return how long the gateway had the request until it decided, None where it does not say."""
    try:
        return float(orjson.loads(answer.body)["error"]["punctual"]["spent_ms"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None


def find_effective_load(
    trace: Trace, service_seconds: dict[int, float], seconds: float, probes: tuple[float, float]
) -> float:
    """Return the load really offered: lambda * E[S] * speed factor.

    The speed factor is the mean probe around the run over the 16-token service time that the rate
    was computed from; above 1 the server was slower during the run than before it.
    """
    factor = sum(probes) / len(probes) / service_seconds[PROBE_TOKENS]
    return offered_seconds(trace, service_seconds) / seconds * factor


@dataclasses.dataclass(slots=True)
class _Bench:
    plan: ComparisonPlan
    folder: Path
    stack: Stack
    console: Console
    model: ServerProcess
    bare: ServerProcess
    service: dict[int, float]
    trace: Trace

    def run_mode(self, mode: ModeUnderTest) -> ModeRun:
        """Run one mode behind a gateway of its own."""
        gateway = self._start_gateway(mode)
        before = self._probe()
        wait_idle(gateway.url)
        with track_requests(self.console, mode.name, len(self.trace)) as on_row:
            result, bare = run_async(self._play(gateway, on_row))
        write_rows(self.folder / "rows" / f"{mode.slug}.jsonl", result.rows)
        after = self._probe()
        wait_idle(gateway.url)
        burst = run_async(self._play_bursts(gateway)) if mode == PREDICTIVE else None
        self.stack.stop(gateway)
        return ModeRun(
            mode=mode,
            rows=result.rows,
            probe_before=before,
            probe_after=after,
            effective_load=find_effective_load(
                self.trace, self.service, self.plan.seconds, (before, after)
            ),
            bare_refusal_ms=tuple(row.latency_ms for row in bare.rows),
            warnings=result.warnings,
            burst=burst,
        )

    def _start_gateway(self, mode: ModeUnderTest) -> ServerProcess:
        policy = build_policy(
            mode,
            model=SERVED_NAME,
            deadline_ms=self.plan.deadline_ms,
            queue_limit=self.plan.queue_limit,
        )
        path = write_policy(self.folder / "policies" / f"{mode.slug}.yaml", policy)
        return self.stack.start_gateway(
            path,
            [self.model.url],
            name=f"gateway-{mode.slug}",
            extra=("--decision-log", str(self._begin_decision_log(mode))),
        )

    def _begin_decision_log(self, mode: ModeUnderTest) -> Path:
        """The file of a mode's decisions, without those of an earlier run."""
        path = self.folder / "decisions" / f"{mode.slug}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        return path

    def _probe(self) -> float:
        return run_async(
            probe_speed(
                Target(self.model.url, SERVED_NAME),
                prompt_tokens=self.plan.prompt_tokens,
                repeats=self.plan.probe_repeats,
            )
        )

    async def _play(
        self, gateway: ServerProcess, on_row: Callable[[RequestRow], None]
    ) -> tuple[LoadResult, LoadResult]:
        """Play the trace against the gateway and, shifted a little, against the bare handler."""
        target = Target(gateway.url, SERVED_NAME, stream=self.plan.stream)
        shifted = [
            dataclasses.replace(request, at_seconds=request.at_seconds + BARE_OFFSET_SECONDS)
            for request in self.trace
        ]
        async with build_session() as session, build_session() as other:
            await self._warm_up(session, target)
            await self._warm_up(other, Target(self.bare.url, SERVED_NAME))
            return await asyncio.gather(
                run_load(self.trace, target, session=session, on_row=on_row),
                run_load(shifted, Target(self.bare.url, SERVED_NAME), session=other),
            )

    async def _warm_up(self, session: aiohttp.ClientSession, target: Target) -> None:
        """Send three short requests alone: connections open and each program's code paths run."""
        request = TraceRequest(0, 0.0, self.plan.prompt_tokens, 1, None)
        for _ in range(3):
            await send(session, target, request, build_body(request, target))

    async def _play_bursts(self, gateway: ServerProcess) -> BurstRun:
        """Send bursts of 30 to the idle gateway, each after one to the bare handler."""
        refused: list[WireAnswer] = []
        bare: list[WireAnswer] = []
        admitted: list[int] = []
        for round_number in range(self.plan.burst_rounds):
            requests = self._build_burst(gateway.url, self.plan.seed + round_number)
            bare += await send_burst(self.bare.url, requests)
            answers = await send_burst(gateway.url, requests)
            refused += [answer for answer in answers if is_refused_at_arrival(answer)]
            admitted.append(sum(answer.status == 200 for answer in answers))
        return BurstRun(
            refusal_ms=tuple(answer.seconds * 1e3 for answer in refused),
            bare_ms=tuple(answer.seconds * 1e3 for answer in bare),
            admitted=tuple(admitted),
            server_ms=tuple(spent for answer in refused if (spent := read_spent_ms(answer))),
        )

    def _build_burst(self, url: str, seed: int) -> list[bytes]:
        trace = build_burst_trace(
            count=BURST_SIZE,
            seed=seed,
            mix=self.plan.mix,
            prompt_tokens=self.plan.prompt_tokens,
            deadline_ms=self.plan.deadline_ms,
        )
        target = Target(url, SERVED_NAME)
        headers = {"X-Deadline-Ms": str(self.plan.deadline_ms)}
        return [build_request(url, build_body(r, target), headers=headers) for r in trace]
