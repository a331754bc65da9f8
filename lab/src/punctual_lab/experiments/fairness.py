"""`punctual-lab fairness`: who is answered, by length."""

from __future__ import annotations

from typing import Any

from punctual_admission.policy import Policy
from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    run_of,
)
from punctual_lab.experiments.tally import add_to_cell, share_good, share_of_class, tally
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.world import PodSpec, World

NAME = "fairness"
TITLE = "Who is answered: the share of each length"
HELP = "share of each size class on time, with and without a reserved share"
LOADS = (1.0, 1.5, 2.0, 3.0)
QUICK_LOADS = (1.0, 2.0)
SECONDS = 600.0
RESERVED = (25, 30)
"""Percent of engine time kept for the longest class."""
SIZES = ("4", "16", "64")


def build_policies() -> dict[str, Policy]:
    """The rules that are compared."""
    policies = {
        name: reference.reference_policy(reference.MODES[name])
        for name in ("Deadline", "Predictive", "Predictive + displacement")
    }
    for percent in RESERVED:
        for name in ("Predictive", "Predictive + displacement"):
            policies[f"{name}, {percent} % reserved"] = reference.reference_policy(
                reference.MODES[name],
                sizeClasses=[{"name": "long", "minimumTokens": 64, "reservedPercent": percent}],
            )
    return policies


add_arguments = add_common_arguments
run = run_of(__name__)


def measure(options: Options) -> Summary:
    """Counts per load and rule."""
    loads = QUICK_LOADS if options.quick else LOADS
    tasks: list[Summary] = [
        {"load": load, "seed": seed, "rule": rule,
         "seconds": SECONDS / 4 if options.quick else SECONDS}
        for load in loads
        for rule in build_policies()
        for seed in options.seeds(8, 3)
    ]  # fmt: skip
    results = options.run(NAME, play, tasks)
    cells: dict[str, Any] = {}
    for task, result in zip(tasks, results, strict=True):
        add_to_cell(cells, f"{task['load']:g}", task["rule"], result)
    return {"cells": cells}


def play(load: float, seed: int, rule: str, seconds: float) -> Summary:
    """One rule on one workload."""
    arrivals = reference.reference_arrivals(load, seconds, seed)
    world = World(build_policies()[rule], [PodSpec(reference.reference_model())])
    return tally(world.run(arrivals))


def describe(summary: Summary) -> list[Block]:
    """One table: rules by size class."""
    rows = []
    for load, cell in summary["cells"].items():
        for rule, counts in cell.items():
            shares = [f"{share_of_class(counts, size):.0%}" for size in SIZES]
            tokens = counts["good_tokens"] / counts["total"]
            broken = (counts["late"] + counts["expired"]) / counts["total"]
            rows.append(
                (f"{load}, {rule}", *shares, f"{share_good(counts):.1%}", f"{tokens:.2f}",
                 f"{broken:.2%}")
            )  # fmt: skip
    columns = ("load, rule", *(f"{size} tokens" for size in SIZES), "all", "good tokens a request",
               "late or expired")  # fmt: skip
    return [
        Text(
            "A rule that admits whoever fits favours the short: they fit more often. The count of "
            "answers rises with it, the long requests pay. Good tokens a request shows whether "
            "more answers also mean more work done."
        ),
        TableBlock(columns, tuple(rows), "Share of each length answered in time"),
        Command("punctual-lab fairness"),
    ]
