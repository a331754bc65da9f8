"""`punctual-lab observe`: what `enforcement: Observe` counts, and what it lets happen."""

from __future__ import annotations

from typing import Any

from punctual_admission.outcomes import Outcome
from punctual_admission.policy import Enforcement
from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    run_of,
)
from punctual_lab.experiments.tally import add_to_cell, share_good, tally
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.world import PodSpec, World

NAME = "observe"
TITLE = "Observe: what would have been refused"
HELP = "what is refused, what would have been under Observe, and what becomes late there"
LOADS = (0.6, 0.8, 1.0, 1.5, 2.0)
QUICK_LOADS = (0.8, 1.5)
SECONDS = 600.0

add_arguments = add_common_arguments
run = run_of(__name__)


def measure(options: Options) -> Summary:
    """Counts per load and enforcement."""
    tasks: list[Summary] = [
        {"load": load, "enforcement": enforcement.value, "seed": seed,
         "seconds": SECONDS / 4 if options.quick else SECONDS}
        for load in (QUICK_LOADS if options.quick else LOADS)
        for enforcement in Enforcement
        for seed in options.seeds(4, 2)
    ]  # fmt: skip
    cells: dict[str, Any] = {}
    for task, result in zip(tasks, options.run(NAME, play, tasks), strict=True):
        add_to_cell(cells, f"{task['load']:g}", task["enforcement"], result)
    return {"cells": cells}


def play(load: float, enforcement: str, seed: int, seconds: float) -> Summary:
    """One enforcement on one workload."""
    mode = reference.MODES["Predictive"]
    policy = reference.reference_policy(mode, enforcement=enforcement)
    world = World(policy, [PodSpec(reference.reference_model())])
    records = world.run(reference.reference_arrivals(load, seconds, seed))
    counts = tally(records)
    flagged = [r for r in records if r.ticket is not None and r.ticket.would_refuse is not None]
    counts["would_refuse"] = len(flagged)
    counts["flagged_good"] = sum(record.outcome is Outcome.GOOD for record in flagged)
    return counts


def describe(summary: Summary) -> list[Block]:
    """One table: loads by enforcement."""
    rows = []
    for load, cell in summary["cells"].items():
        enforce, observe = cell[Enforcement.ENFORCE.value], cell[Enforcement.OBSERVE.value]
        flagged = observe["would_refuse"]
        rows.append(
            (load, f"{enforce['refused'] / enforce['total']:.1%}",
             f"{flagged / observe['total']:.1%}",
             f"{share_good(enforce):.1%}", f"{share_good(observe):.1%}",
             f"{observe['late'] / observe['total']:.1%}",
             f"{observe['flagged_good'] / flagged:.1%}" if flagged else "-")
        )  # fmt: skip
    columns = ("load", "refused (Enforce)", "would be refused (Observe)", "in time (Enforce)",
               "in time (Observe)", "late (Observe)", "of those flagged, in time")  # fmt: skip
    return [
        Text(
            "Observe decides and counts, and refuses nothing. While the load is small the count is "
            "what enforcing would refuse. Under overload it is more: whoever would have been "
            "refused is in the queue nevertheless, and makes the next ones late as well. Its price "
            "is what there is without admission: late answers."
        ),
        TableBlock(columns, tuple(rows), "Decisions carried out, and only counted"),
        Command("punctual-lab observe"),
    ]
