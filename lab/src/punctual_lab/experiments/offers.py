"""`punctual-lab offers`: clients that take a shorter answer instead of none."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

from punctual_admission.outcomes import Outcome
from punctual_admission.policy import policy_from_spec
from punctual_admission.ticket import Request, Ticket
from punctual_lab.bench.decision import build_ledger, far_request, microseconds
from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    run_of,
)
from punctual_lab.experiments.tally import add_to_cell, share_good, tally
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.world import Arrival, PodSpec, Record, World

NAME = "offers"
TITLE = "Counter-offers: a shorter answer instead of none"
HELP = "what clients get that take a shorter answer, and what an offer costs"
LOADS = (1.0, 1.5, 2.0, 3.0)
QUICK_LOADS = (1.5, 2.0)
TAKERS = (0.0, 0.5, 1.0)
"""Share of the clients that take a shorter answer."""
SECONDS = 600.0
QUEUES = (10, 100, 1000)
ROUNDS = 200

add_arguments = add_common_arguments
run = run_of(__name__)


def measure(options: Options) -> Summary:
    """Counts per load and share of takers, and microseconds of a refusal."""
    tasks = [
        {"load": load, "takers": takers, "seed": seed,
         "seconds": SECONDS / 4 if options.quick else SECONDS}
        for load in (QUICK_LOADS if options.quick else LOADS)
        for takers in TAKERS
        for seed in options.seeds(4, 2)
    ]  # fmt: skip
    cells: dict[str, Any] = {}
    for task, result in zip(tasks, options.run(NAME, play, tasks), strict=True):
        add_to_cell(cells, f"{task['load']:g}", f"{task['takers']:.0%}", result)
    return {"cells": cells, "cost": {str(length): measure_cost(length) for length in QUEUES}}


def play(load: float, takers: float, seed: int, seconds: float) -> Summary:
    """One share of takers on one workload."""
    mode = reference.MODES["Predictive"]
    policy = reference.reference_policy(mode, refusals={"counterOffer": "Always"})
    world = World(policy, [PodSpec(reference.reference_model())])
    records = world.run(mark(reference.reference_arrivals(load, seconds, seed), takers, seed))
    counts = tally(records)
    good = [record for record in records if record.outcome is Outcome.GOOD]
    counts["good_tokens"] = sum(map(_granted, good))
    shorter = [r for r in good if _granted(r) < r.arrival.max_tokens]
    counts["shorter"] = len(shorter)
    counts["shorter_tokens"] = sum(map(_granted, shorter))
    counts["asked_tokens"] = sum(record.arrival.max_tokens for record in shorter)
    return counts


def mark(arrivals: list[Arrival], takers: float, seed: int) -> list[Arrival]:
    """A share of the clients takes a shorter answer."""
    rng = random.Random(seed)
    return [replace(arrival, takes_shorter=rng.random() < takers) for arrival in arrivals]


def _granted(record: Record) -> int:
    return record.arrival.max_tokens if record.ticket is None else (
        record.ticket.request.output_tokens
    )  # fmt: skip


def measure_cost(length: int) -> dict[str, dict[str, float]]:
    """Microseconds of CPU time of a refusal with so many waiting, without and with an offer.

    Two pods of four slots, right after something changed; the refused one is the most urgent, so
    that each question that fits walks the whole queue.
    """
    cost = {}
    for name, offer in (("without", "Never"), ("with", "Always")):
        ledger = build_ledger(length, random.Random(1))
        ledger.apply_policy(policy_from_spec({"model": "lab", "refusals": {"counterOffer": offer}}))
        rng, spent = random.Random(2), []
        for number in range(ROUNDS):
            # Something changes, so that the forecast is made anew.
            changed = ledger.offer(far_request(f"a{number}", rng), 0.0)
            if isinstance(changed, Ticket):
                ledger.end(changed, Outcome.CANCELLED, 0.0)
            begun = time.thread_time()
            ledger.offer(Request("r", 16, 64, 0.0, 0.3), 0.0)
            spent.append(time.thread_time() - begun)
        cost[name] = microseconds(spent)
    return cost


def describe(summary: Summary) -> list[Block]:
    """What it is worth, and what it costs."""
    rows = []
    for load, cell in summary["cells"].items():
        for takers, counts in cell.items():
            asked = counts["asked_tokens"]
            kept = f"{counts['shorter_tokens'] / asked:.0%}" if asked else "-"
            rows.append(
                (load, takers, f"{share_good(counts):.1%}",
                 f"{counts['shorter'] / counts['total']:.1%}", kept,
                 f"{counts['good_tokens'] / counts['total']:.2f}",
                 f"{(counts['late'] + counts['expired']) / counts['total']:.2%}")
            )  # fmt: skip
    columns = ("load", "take a shorter answer", "in time", "of these shorter", "tokens kept",
               "good tokens a request", "late or expired")  # fmt: skip
    costs = tuple(
        (length, *(f"{one[when]['p50_us']:.0f} / {one[when]['p99_us']:.0f}"
                   for when in ("without", "with")))
        for length, one in summary["cost"].items()
    )  # fmt: skip
    return [
        Text(
            "A refusal says the longest answer that would still be on time; some clients take it. "
            "They are answered, with fewer tokens, and what is left of the room goes to nobody "
            "else: the others are refused more often."
        ),
        TableBlock(columns, tuple(rows), "Clients that take the counter-offer"),
        TableBlock(
            ("waiting", "without an offer, µs", "with an offer, µs"),
            costs,
            "CPU time of a refusal, p50 / p99",
        ),
        Command("punctual-lab offers"),
    ]
