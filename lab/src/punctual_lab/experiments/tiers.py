"""`punctual-lab tiers`: what a share for interactive callers costs those in no hurry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from punctual_admission.policy import Policy
from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    run_of,
)
from punctual_lab.experiments.tally import add_to_cell, share_good, tally_by
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.world import Arrival, PodSpec, World

NAME = "tiers"
TITLE = "Tiers: interactive callers beside batch work"
HELP = "share of interactive and batch requests on time, by the share that is reserved"
INTERACTIVE_LOAD = 0.6
BATCH_LOADS = (0.6, 1.2, 2.4)
QUICK_BATCH_LOADS = (1.2,)
BATCH_TOKENS, BATCH_SECONDS = 64, 10.0
RESERVED = (0, 10, 30, 50)
"""Percent of engine time kept for interactive requests."""
SECONDS = 600.0

add_arguments = add_common_arguments
run = run_of(__name__)


def build_policy(percent: int) -> Policy:
    """Two tiers: 2 s with a share, and 10 s without one."""
    tiers = [
        {"name": "interactive", "reservedPercent": percent},
        {"name": "batch", "defaultDeadlineMilliseconds": int(BATCH_SECONDS * 1000)},
    ]
    return reference.reference_policy(reference.MODES["Predictive"], tiers=tiers)


def build_arrivals(batch_load: float, seconds: float, seed: int) -> list[Arrival]:
    """The reference mix with its deadline of 2 s, and long answers with one of 10 s."""
    interactive = reference.reference_arrivals(INTERACTIVE_LOAD, seconds, seed)
    batch = reference.reference_arrivals(batch_load, seconds, seed + 1000)
    mean = reference.mean_service_seconds()
    work = reference.reference_model().alone(0, BATCH_TOKENS)
    kept = [arrival for index, arrival in enumerate(batch) if index * mean % work < mean]
    return [replace(arrival, tier="interactive") for arrival in interactive] + [
        replace(arrival, tier="batch", max_tokens=BATCH_TOKENS, budget=BATCH_SECONDS)
        for arrival in kept
    ]


def measure(options: Options) -> Summary:
    """Counts per tier, batch load and share."""
    tasks = [
        {"batch": load, "percent": percent, "seed": seed,
         "seconds": SECONDS / 4 if options.quick else SECONDS}
        for load in (QUICK_BATCH_LOADS if options.quick else BATCH_LOADS)
        for percent in RESERVED
        for seed in options.seeds(4, 2)
    ]  # fmt: skip
    cells: dict[str, Any] = {}
    for task, result in zip(tasks, options.run(NAME, play, tasks), strict=True):
        add_to_cell(cells, f"{task['batch']:g}", str(task["percent"]), result)
    return {"cells": cells}


def play(batch: float, percent: int, seed: int, seconds: float) -> Summary:
    """One share on one workload."""
    world = World(build_policy(percent), [PodSpec(reference.reference_model())])
    records = world.run(build_arrivals(batch, seconds, seed))
    return tally_by(records, lambda record: record.arrival.tier)


def describe(summary: Summary) -> list[Block]:
    """One table: share by tier."""
    rows = []
    for load, cell in summary["cells"].items():
        for percent, tiers in cell.items():
            tokens = sum(counts["good_tokens"] for counts in tiers.values())
            total = sum(counts["total"] for counts in tiers.values())
            broken = sum(counts["late"] + counts["expired"] for counts in tiers.values())
            rows.append(
                (load, f"{percent} %", f"{share_good(tiers['interactive']):.1%}",
                 f"{share_good(tiers['batch']):.1%}", f"{tokens / total:.2f}",
                 f"{broken / total:.2%}")
            )  # fmt: skip
    columns = ("batch load", "reserved", "interactive in time", "batch in time",
               "good tokens a request", "late or expired")  # fmt: skip
    return [
        Text(
            f"Interactive requests (the reference mix at load {INTERACTIVE_LOAD:g}, deadline 2 s) "
            f"beside answers of {BATCH_TOKENS} tokens with {BATCH_SECONDS:g} s. Batch work that "
            "was admitted is promised its deadline, and so stands in the way of later requests in "
            "a hurry; what is reserved for them is kept free of it, and lent out when they do not "
            "ask."
        ),
        TableBlock(columns, tuple(rows), "Share of each tier answered in time"),
        Command("punctual-lab tiers"),
    ]
