"""`punctual-lab quotas`: one client that asks for too much, and all the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from punctual_admission.outcomes import Reason
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
from punctual_lab.simulate.world import Arrival, PodSpec, Record, World

NAME = "quotas"
TITLE = "Quotas: one client that floods the pool"
HELP = "share of steady clients on time beside one that floods, with and without quotas"
STEADY, STEADY_LOAD = 9, 0.08
FLOODS = (0.08, 1.0, 3.0)
QUICK_FLOODS = (3.0,)
QUOTAS = {"no quota": 0, "12 % of a pod each": 7200}
"""GPU-milliseconds a minute for each client."""
BURST_SECONDS = 20
SECONDS = 600.0

add_arguments = add_common_arguments
run = run_of(__name__)


def build_policy(rule: str) -> Policy:
    """Predictive, with the quota."""
    limit = QUOTAS[rule]
    quota = {"gpuMillisecondsPerMinute": limit, "burstSeconds": BURST_SECONDS} if limit else {}
    return reference.reference_policy(reference.MODES["Predictive"], quota=quota)


def build_arrivals(flood: float, seconds: float, seed: int) -> list[Arrival]:
    """Nine clients of one load, and the tenth of another."""
    loads = {f"steady {number}": STEADY_LOAD for number in range(STEADY)} | {"flood": flood}
    return [
        replace(arrival, client=name)
        for number, (name, load) in enumerate(loads.items())
        for arrival in reference.reference_arrivals(load, seconds, seed + 1000 * number)
    ]


def measure(options: Options) -> Summary:
    """Counts of steady clients and of the flood, per load and rule."""
    tasks: list[Summary] = [
        {"flood": flood, "rule": rule, "seed": seed,
         "seconds": SECONDS / 4 if options.quick else SECONDS}
        for flood in (QUICK_FLOODS if options.quick else FLOODS)
        for rule in QUOTAS
        for seed in options.seeds(4, 2)
    ]  # fmt: skip
    cells: dict[str, Any] = {}
    for task, result in zip(tasks, options.run(NAME, play, tasks), strict=True):
        add_to_cell(cells, f"{task['flood']:g}", task["rule"], result)
    return {"cells": cells}


def play(flood: float, rule: str, seed: int, seconds: float) -> Summary:
    """One rule on one workload."""
    world = World(build_policy(rule), [PodSpec(reference.reference_model())])
    records = world.run(build_arrivals(flood, seconds, seed))
    groups = tally_by(records, lambda record: record.arrival.client.partition(" ")[0])
    for name, counts in groups.items():
        counts["over_quota"] = sum(_is_over_quota(record, name) for record in records)
    return groups


def _is_over_quota(record: Record, group: str) -> bool:
    over = record.reason is Reason.CLIENT_QUOTA_EXCEEDED
    return over and record.arrival.client.startswith(group)


def describe(summary: Summary) -> list[Block]:
    """One table: steady clients and the flood."""
    rows = []
    for flood, cell in summary["cells"].items():
        for rule, groups in cell.items():
            steady, other = groups["steady"], groups["flood"]
            rows.append(
                (flood, rule, f"{share_good(steady):.1%}", f"{share_good(other):.1%}",
                 f"{steady['over_quota'] / steady['total']:.1%}",
                 f"{other['over_quota'] / other['total']:.1%}",
                 f"{(steady['good_tokens'] + other['good_tokens']) / 1000:.0f} k")
            )  # fmt: skip
    columns = ("flood's load", "rule", "steady in time", "flood in time", "steady over quota (429)",
               "flood over quota (429)", "good tokens")  # fmt: skip
    return [
        Text(
            f"{STEADY} clients at load {STEADY_LOAD:g} each, and one at another load. Admission "
            "alone shares what there is by who asks more; a quota keeps one client's flood from "
            "the others. Its price is engine time that nobody else asked for, and a 429 where a "
            "steady client's own burst exceeds its bucket."
        ),
        TableBlock(columns, tuple(rows), "Share answered in time, and refused for the quota"),
        Command("punctual-lab quotas"),
    ]
