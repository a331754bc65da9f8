"""`punctual-lab leaving`: what it saves to stop work whose client has left."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from punctual_admission.outcomes import Outcome
from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    run_of,
)
from punctual_lab.experiments.tally import add_to_cell, tally
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.world import Arrival, PodSpec, Record, World

NAME = "leaving"
TITLE = "Clients that leave: work that is stopped, and work for nobody"
HELP = "share on time of clients that stay, and work wasted, with and without cancelling"
LOAD = 1.5
RATES = (0.0, 0.1, 0.3, 0.5)
QUICK_RATES = (0.0, 0.3)
SECONDS = 600.0

add_arguments = add_common_arguments
run = run_of(__name__)


def build_arrivals(rate: float, seconds: float, seed: int) -> list[Arrival]:
    """The reference's, of which a share leaves at some moment before its deadline."""
    rng = random.Random(seed)
    found = []
    for arrival in reference.reference_arrivals(LOAD, seconds, seed):
        leaves, when = rng.random() < rate, rng.uniform(0, arrival.budget)
        found.append(replace(arrival, leaves_after=when) if leaves else arrival)
    return found


def measure(options: Options) -> Summary:
    """Counts and work per rate, stopped or not."""
    tasks = [
        {"rate": rate, "cancels": cancels, "seed": seed,
         "seconds": SECONDS / 4 if options.quick else SECONDS}
        for rate in (QUICK_RATES if options.quick else RATES)
        for cancels in (True, False)
        for seed in options.seeds(4, 2)
    ]  # fmt: skip
    cells: dict[str, Any] = {}
    for task, result in zip(tasks, options.run(NAME, play, tasks), strict=True):
        name = "stopped" if task["cancels"] else "goes on"
        add_to_cell(cells, f"{task['rate']:g}", name, result)
    return {"cells": cells}


def play(rate: float, cancels: bool, seed: int, seconds: float) -> Summary:
    """One rate, with or without cancelling."""
    policy = reference.reference_policy(reference.MODES["Predictive"], overdue="Cancel")
    world = World(policy, [PodSpec(reference.reference_model())], cancels=cancels)
    records = world.run(build_arrivals(rate, seconds, seed))
    staying = [record for record in records if record.arrival.leaves_after is None]
    counts = tally(records)
    counts["staying"] = len(staying)
    counts["staying_good"] = sum(record.outcome is Outcome.GOOD for record in staying)
    counts["wasted"] = sum(_work(r, done=True) for r in records if r.left)
    counts["saved"] = sum(_work(r, done=False) for r in records if r.left)
    return counts


def _work(record: Record, *, done: bool) -> float:
    """GPU-seconds that were spent on a request that left, or that were not."""
    ticket, model = record.ticket, reference.reference_model()
    whole = model.cost(record.arrival.prompt_tokens, record.arrival.actual_tokens)
    if ticket is None or not ticket.dispatches or not ticket.generated:
        return 0.0 if done else whole
    spent = model.cost(record.arrival.prompt_tokens, ticket.generated)
    return spent if done else whole - spent


def describe(summary: Summary) -> list[Block]:
    """One table: rates by what happens to the work."""
    rows = [
        (f"{float(rate):.0%}", name, f"{counts['staying_good'] / counts['staying']:.1%}",
         f"{counts['good_tokens'] / 1000:.0f} k", f"{counts['wasted']:.0f}",
         f"{counts['saved']:.0f}")
        for rate, cell in summary["cells"].items()
        for name, counts in cell.items()
    ]  # fmt: skip
    columns = ("clients that leave", "their work", "of those that stay, in time", "good tokens",
               "GPU-seconds wasted", "GPU-seconds saved")  # fmt: skip
    return [
        Text(
            f"Load {LOAD:g}; a share of the clients leaves at some moment before the deadline. "
            "Stopped: the place in the queue, or the slot within one step, is free at once, and "
            "what is left of the work is done for somebody who waits. The gateway counts the same "
            "in `punctual_saved_gpu_seconds_total` and `punctual_wasted_gpu_seconds_total`."
        ),
        TableBlock(columns, tuple(rows), "Work for clients that have left"),
        Command("punctual-lab leaving"),
    ]
