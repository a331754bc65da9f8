"""`punctual-lab retries`: what refused clients do next, and what it does to everybody."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from punctual_admission.outcomes import Outcome
from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    run_of,
)
from punctual_lab.load.retry import (
    RETRY_BEHAVIOURS,
    IgnoreRetryAfter,
    RetryBehaviour,
    RetryBudget,
)
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.world import PodSpec, Record, World

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "retries"
TITLE = "Retries: four client behaviours"
HELP = "play four client behaviours against the modes, at several loads"
LOADS = (0.8, 1.0, 1.5, 2.0)
QUICK_LOADS = (1.0, 2.0)
MODES = ("Bounded", "Deadline", "Predictive")
SECONDS = 600.0
BEHAVIOURS = (*RETRY_BEHAVIOURS, "budget, ignores")

add_arguments = add_common_arguments
run = run_of(__name__)


def measure(options: Options) -> Summary:
    """Per load, mode and behaviour: requests answered in the end, and attempts per request."""
    loads = QUICK_LOADS if options.quick else LOADS
    tasks = [
        {"load": load, "seed": seed, "mode": mode, "behaviour": behaviour,
         "seconds": SECONDS / 4 if options.quick else SECONDS}
        for load in loads
        for mode in MODES
        for behaviour in BEHAVIOURS
        for seed in options.seeds(4, 2)
    ]  # fmt: skip
    results = options.run(NAME, play, tasks)
    cells: dict[str, Any] = {}
    for task, result in zip(tasks, results, strict=True):
        key = f"{task['load']:g}/{task['mode']}/{task['behaviour']}"
        cell = cells.setdefault(key, dict.fromkeys(result, 0.0))
        for name, value in result.items():
            cell[name] += value
    return {"cells": cells, "loads": list(loads)}


def play(load: float, seed: int, mode: str, behaviour: str, seconds: float) -> Summary:
    """One behaviour against one mode."""
    arrivals = reference.reference_arrivals(load, seconds, seed)
    policy = reference.reference_policy(reference.MODES[mode])
    world = World(
        policy,
        [PodSpec(reference.reference_model())],
        seed=seed,
        retry=build_behaviour(behaviour, seed),
    )
    return count_requests(world.run(arrivals))


def build_behaviour(name: str, seed: int) -> RetryBehaviour:
    """A fresh behaviour; its randomness comes from the seed."""
    ignoring = IgnoreRetryAfter(rng=random.Random(seed))
    if name == "ignore":
        return ignoring
    if name == "budget, ignores":
        return RetryBudget(inner=ignoring)
    return RETRY_BEHAVIOURS[name]()


def count_requests(records: Iterable[Record]) -> Summary:
    """Requests, attempts, and how requests (not attempts) ended."""
    counts: dict[str, Any] = dict.fromkeys(
        ("requests", "attempts", "good", "in_first_budget", "late", "given_up", "expired"), 0
    )
    for record in records:
        counts["attempts"] += 1
        if record.attempt > 1:
            continue
        counts["requests"] += 1
        last = record
        while last.retry is not None:
            last = last.retry
        word = "given_up" if last.outcome is Outcome.REFUSED else str(last.outcome)
        counts[word] += 1
        ended = last.ended or 0.0
        counts["in_first_budget"] += (
            last.outcome is Outcome.GOOD and ended <= record.arrival.at + record.arrival.budget
        )
    return counts


def describe(summary: Summary) -> list[Block]:
    """One table a load."""
    blocks: list[Block] = [
        Text(
            "`none` gives up at the first refusal; `obey` waits as long as the refusal says (at "
            "most 5 attempts) and gives up when it says that no retry helps; `ignore` comes back "
            "after 50 ms, doubling; `budget` obeys, and retries at most a tenth as often as it "
            "calls; `budget, ignores` is the same budget around a client that ignores the advice. "
            "A retry has a fresh deadline, as the SDKs do it; the second column counts what was "
            "answered within the deadline of the first attempt."
        )
    ]
    for load in summary["loads"]:
        rows = []
        for key, cell in summary["cells"].items():
            at, mode, behaviour = key.split("/")
            if at != f"{load:g}":
                continue
            shares = [
                f"{cell[name] / cell['requests']:.1%}"
                for name in ("good", "in_first_budget", "late", "expired", "given_up")
            ]
            rows.append(
                (f"{mode}, {behaviour}", *shares, f"{cell['attempts'] / cell['requests']:.2f}")
            )
        columns = (
            "mode, clients", "answered in the end", "within the first deadline", "late",
            "expired", "given up", "attempts a request",
        )  # fmt: skip
        blocks.append(TableBlock(columns, tuple(rows), f"Load {load:g}: share of requests"))
    return [*blocks, Command("punctual-lab retries")]
