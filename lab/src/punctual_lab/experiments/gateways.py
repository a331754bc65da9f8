"""`punctual-lab gateways`: several gateways over one pool, on virtual time and live.

Every gateway gets its share of the same requests at random. With peers they tell one another what
waits and runs (see `punctual_admission.peers`); without, each knows of the others only what the
pods say when asked, every 200 ms. Either way the pod has the last word.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from typing import TYPE_CHECKING, Any

from punctual_admission.outcomes import Outcome
from punctual_admission.service_time import ServiceModel
from punctual_lab.aio import run_async
from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    options_of,
    run_experiment,
)
from punctual_lab.experiments.tally import add_tallies, share_good, tally
from punctual_lab.gateway_stats import fetch, wait_for
from punctual_lab.load.client import Target, build_session
from punctual_lab.load.generator import run_load
from punctual_lab.measures import quantile
from punctual_lab.policies import PREDICTIVE, build_policy, write_policy
from punctual_lab.processes import STOP_AT_ONCE, Stack, find_free_port, find_program
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.gateways import Gateways
from punctual_lab.simulate.world import PodSpec
from punctual_lab.traces import REFERENCE_MIX, build_poisson_trace, rate_for_load

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from punctual_lab.load.rows import RequestRow
    from punctual_lab.processes import ServerProcess
    from punctual_lab.traces import Trace

NAME = "gateways"
TITLE = "Several gateways over one pool"
HELP = "one, two and four gateways over the same pods: who is answered in time, and what it costs"
POOLS = {"1 pod of 1 slot": (1, 1), "2 pods of 4 slots": (2, 4)}
LOADS = (1.0, 2.0)
NUMBERS = (1, 2, 4)
SLOWER_PER_NEIGHBOUR = 0.1
"""How much longer a step takes for each further request in it."""
TELL_SECONDS = 0.002
SECONDS, QUICK_SECONDS = 300.0, 60.0
LIVE_SECONDS, QUICK_LIVE_SECONDS = 40.0, 10.0
PEERS_SECONDS = 60.0
LIVE_LOAD = 2.0
SIMULATED_ENGINE = ("--engine", "sim", "--sim-step-ms", "8")
LIVE_STEP, LIVE_PREFILL = 0.008, 0.0088
"""Seconds, as the simulated engine has them for prompts of 16 tokens."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--no-live", action="store_true", help="on virtual time only")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the experiment."""
    run_experiment(sys.modules[__name__], options_of(args, live=not args.no_live))
    return 0


def measure(options: Options) -> Summary:
    """Counts for each pool, load, number of gateways, with peers and without."""
    seconds = QUICK_SECONDS if options.quick else SECONDS
    tasks: list[dict[str, Any]] = [
        {"pool": pool, "load": load, "gateways": number, "peers": peers, "seconds": seconds}
        | {"seed": seed}
        for pool in POOLS
        for load in LOADS
        for number in NUMBERS
        for peers in (True, False)
        if peers or number > 1
        for seed in options.seeds(5, 1)
    ]
    cells: dict[str, dict[str, Any]] = {}
    for task, result in zip(tasks, options.run(NAME, play, tasks), strict=True):
        key = f"{task['pool']}, load {task['load']:g}"
        cell = cells.setdefault(key, {}).setdefault(_row_name(task["gateways"], task["peers"]), [])
        cell.append(result)
    summary: Summary = {
        "cells": {
            key: {name: _sum(results) for name, results in rows.items()}
            for key, rows in cells.items()
        }
    }
    if options.extra.get("live", True):
        summary["live"] = measure_live(options)
    return summary


def _row_name(gateways: int, peers: bool) -> str:
    if gateways == 1:
        return "1 gateway"
    return f"{gateways} gateways" if peers else f"{gateways}, no peers"


def play(pool: str, load: float, gateways: int, peers: bool, seconds: float, seed: int) -> Summary:
    """One workload through so many gateways."""
    pods, slots = POOLS[pool]
    alone = reference.reference_model()
    step = alone.step_seconds[0]
    steps = tuple(step * (1 + SLOWER_PER_NEIGHBOUR * batch) for batch in range(slots))
    model = ServiceModel(steps, alone.prefill_base)
    rate = pods * slots * steps[0] / steps[-1]
    arrivals = reference.reference_arrivals(load * rate, seconds, seed)
    world = Gateways(
        reference.reference_policy(PREDICTIVE),
        [PodSpec(model)] * pods,
        gateways,
        tell=TELL_SECONDS if peers else None,
        seed=seed,
    )
    counts = tally(world.run(arrivals))
    return {"counts": counts, "sent": world.counts.dispatches, "back": world.counts.declined_wait}


def _sum(results: Sequence[Summary]) -> Summary:
    back = sorted(seconds for result in results for seconds in result["back"])
    return {
        "counts": add_tallies([result["counts"] for result in results]),
        "sent": sum(result["sent"] for result in results),
        "sent_back": len(back),
        "sent_back_p99_ms": None if (p99 := quantile(back, 0.99)) is None else p99 * 1e3,
    }


# --- live ------------------------------------------------------------------------------------


def measure_live(options: Options) -> Summary:
    """One model server with a simulated engine, the same trace through one and two gateways."""
    seconds = QUICK_LIVE_SECONDS if options.quick else LIVE_SECONDS
    service = {n: LIVE_PREFILL + (n - 1) * LIVE_STEP for n in REFERENCE_MIX.tokens}
    trace = build_poisson_trace(
        rate_per_second=rate_for_load(LIVE_LOAD, REFERENCE_MIX.mean_of(service)),
        duration_seconds=seconds,
        seed=options.seed,
        deadline_ms=2000,
    )
    folder = options.folder / NAME
    policy = write_policy(folder / "policy.yaml", build_policy(PREDICTIVE, overdue="Cancel"))
    live = {}
    with Stack(folder / "logs") as stack:
        pod = stack.start_model_server(extra=SIMULATED_ENGINE)
        for number, peers in ((1, True), (2, True), (2, False)):
            urls = [f"http://127.0.0.1:{find_free_port()}" for _ in range(number)]
            gateways = [
                _start_gateway(stack, str(policy), pod.url, url, urls if peers else ())
                for url in urls
            ]
            _wait_for_peers(urls, number - 1 if peers else 0)
            rows = run_async(_play_live(trace, urls, options.seed))
            live[_row_name(number, peers)] = count_live(rows, urls)
            for gateway in gateways:
                stack.stop(gateway)
    return live


def _start_gateway(
    stack: Stack, policy: str, pod: str, url: str, peers: Sequence[str]
) -> ServerProcess:
    port = int(url.rpartition(":")[2])
    argv = [find_program("punctual-gateway"), "--policy", policy, "--backend", pod]
    argv += ["--port", str(port), *STOP_AT_ONCE]
    for peer in peers:
        argv += ["--peer", peer]
    return stack.launch(f"gateway-{port}", argv, port=port)


def _wait_for_peers(urls: Sequence[str], number: int) -> None:
    """Until each gateway hears the others: a gateway tries again every half second."""

    def lacking(stats: Summary) -> str:
        heard = len(stats["peers"])
        return f"must hear {number} peers, hears {heard}," if heard < number else ""

    for url in urls:
        wait_for(url, lacking, PEERS_SECONDS)


async def _play_live(trace: Trace, urls: Sequence[str], seed: int) -> list[RequestRow]:
    """The trace, each request to a gateway chosen at random."""
    rng = random.Random(seed)
    parts: list[list[Any]] = [[] for _ in urls]
    for request in trace:
        rng.choice(parts).append(request)
    async with build_session() as session:
        results = await asyncio.gather(
            *(
                run_load(part, Target(url, "lab"), session=session)
                for url, part in zip(urls, parts, strict=True)
            )
        )
    return [row for result in results for row in result.rows]


def count_live(rows: Sequence[RequestRow], urls: Sequence[str]) -> Summary:
    """Outcomes, and how many the pod sent back, by the gateways' own count."""
    counts = dict.fromkeys((outcome.value for outcome in Outcome), 0)
    for row in rows:
        counts[row.outcome] += 1
    refused = sorted(row.latency_ms for row in rows if row.outcome is Outcome.REFUSED)
    return {
        "counts": counts | {"total": len(rows)},
        "sent_back": sum(_declined(url) for url in urls),
        "refusal_p50_ms": quantile(refused, 0.5),
    }


def _declined(url: str) -> int:
    text = fetch(f"{url}/metrics").decode()
    found = re.findall(
        r'^punctual_declined_total\{code="deadline_unreachable"\} (\S+)', text, re.MULTILINE
    )
    return round(sum(map(float, found)))


# --- report ----------------------------------------------------------------------------------


def describe(summary: Summary) -> list[Block]:
    """One table a pool and load, and the live one."""
    blocks: list[Block] = [
        Text(
            "Each gateway gets its share of the same requests. Gateways that are peers tell one "
            f"another what waits and runs, {TELL_SECONDS * 1e3:g} ms after it changed; without "
            "peers each knows what the pods say, every 200 ms. A pod sends back, unstarted, what "
            "it could not finish in time."
        )
    ]
    for key, rows in summary["cells"].items():
        blocks.append(_table(rows, f"{key}, on virtual time"))
    if "live" in summary:
        caption = f"1 pod of 1 slot, load {LIVE_LOAD:g}, real gateways and a real model server"
        blocks.append(_table(summary["live"], f"{caption} whose engine sleeps"))
    return [*blocks, Command("punctual-lab gateways")]


def _table(rows: dict[str, Any], caption: str) -> TableBlock:
    one = share_good(rows["1 gateway"]["counts"])
    columns = ("", "in time", "of one's", "late", "refused", "expired", "sent back")
    return TableBlock(
        columns,
        tuple(
            (
                name,
                f"{share_good(row['counts']):.1%}",
                f"{share_good(row['counts']) / one:.1%}" if one else "-",
                *(str(row["counts"][word]) for word in ("late", "refused", "expired")),
                _sent_back(row),
            )
            for name, row in rows.items()
        ),
        caption,
    )


def _sent_back(row: Summary) -> str:
    p99 = row.get("sent_back_p99_ms")
    told = "" if p99 is None else f" ({p99 / 1e3:.1f} s)"
    return f"{row['sent_back']}{told}"
