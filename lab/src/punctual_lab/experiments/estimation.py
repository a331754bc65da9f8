"""`punctual-lab estimation`: what a wrong estimate costs, in length and in speed."""

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
from punctual_lab.experiments.tally import mean_and_error, share_good, tally
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.margins import NoMargin
from punctual_lab.simulate.world import Arrival, PodSpec, World

NAME = "estimation"
TITLE = "What an estimate costs: lengths and speed"
HELP = "true, maximum and learned lengths; fixed and tracked speed under a slowdown"
LOADS = (1.0, 1.5, 3.0, 4.5)
"""In work really done: callers who ask for twice as much ask for twice these loads."""
SLOW_LOADS = (1.0, 2.0)
"""On the slower machine, which has less room for a wait."""
LENGTH_SECONDS = 450.0
WARM_SECONDS = 150.0
"""Requests of the first seconds are not counted: a cold start is the maximum."""
SECONDS = 600.0
HABITS = {"about half": (0.45, 0.55), "anywhere": (0.0, 1.0)}
"""Where callers stop: a share of the maximum, uniform between the two."""
LENGTHS: dict[str, dict[str, Any]] = {
    "true": {},
    "maximum": {},
    "learned 90": {"outputLength": "Learned", "lengthCertaintyPercent": 90},
    "learned 99": {"outputLength": "Learned", "lengthCertaintyPercent": 99},
}
"""The estimate section of the policy for each kind of knowledge."""
SPEEDS = ("Fixed, no margin", "Fixed", "Tracking")
SLOWDOWN = 2.2
SLOWDOWN_LOADS = (0.7, 1.0, 2.0)

add_arguments = add_common_arguments
run = run_of(__name__)


def measure(options: Options) -> Summary:
    """Goodput per kind of knowledge and load; late answers per speed rule."""
    seconds = SECONDS / 4 if options.quick else SECONDS
    seeds = options.seeds(10, 3)
    counted = (LENGTH_SECONDS - WARM_SECONDS) / (3 if options.quick else 1)
    machines = [(load, 1.0) for load in LOADS] + [(load, reference.SLOW) for load in SLOW_LOADS]
    lengths = [
        {"habit": habit, "knowledge": knowledge, "load": load, "slow": slow, "seed": seed,
         "seconds": (WARM_SECONDS + counted) * slow}
        for habit in HABITS
        for load, slow in machines
        for knowledge in LENGTHS
        for seed in options.seeds(4, 1)
    ]  # fmt: skip
    speeds = [
        {"speed": speed, "load": load, "seed": seed, "seconds": seconds}
        for load in SLOWDOWN_LOADS
        for speed in SPEEDS
        for seed in seeds
    ]
    known = options.run(f"{NAME}/lengths", play_lengths, lengths)
    slowed = options.run(f"{NAME}/speeds", play_slowdown, speeds)
    return {
        "lengths": _length_cells(lengths, known),
        "speeds": _speed_cells(speeds, slowed),
    }


def stopping_early(arrivals: list[Arrival], habit: str, seed: int) -> list[Arrival]:
    """The same requests, each ending somewhere before its maximum."""
    rng = random.Random(seed + 1_000_003)
    low, high = HABITS[habit]
    return [
        replace(a, output_tokens=max(1, round(a.max_tokens * rng.uniform(low, high))))
        for a in arrivals
    ]


def play_lengths(
    habit: str, knowledge: str, load: float, slow: float, seed: int, seconds: float
) -> Summary:
    """One kind of knowledge; load is in work really done by callers of this habit."""
    full = reference.reference_arrivals(load * 2, seconds, seed, slow)
    arrivals = stopping_early(full, habit, seed)
    if knowledge == "true":
        arrivals = [replace(a, max_tokens=a.actual_tokens) for a in arrivals]
    policy = reference.reference_policy(
        reference.MODES["Predictive"], estimate=dict(LENGTHS[knowledge])
    )
    records = World(policy, [PodSpec(reference.reference_model(slow))]).run(arrivals)
    counts = tally([record for record in records if record.arrival.at >= WARM_SECONDS * slow])
    del counts["by_tokens"]
    return counts


def play_slowdown(speed: str, load: float, seed: int, seconds: float) -> Summary:
    """The machine becomes `SLOWDOWN` times slower half way through."""
    arrivals = reference.reference_arrivals(load, seconds, seed)
    rule, _, bare = speed.partition(", ")
    policy = reference.reference_policy(reference.MODES["Predictive"], estimate={"speed": rule})
    world = World(
        policy,
        [PodSpec(reference.reference_model())],
        sojourns=NoMargin() if bare else None,
        services=NoMargin() if bare else None,
    )
    world.slow_down(seconds / 2, SLOWDOWN)
    after = [r for r in world.run(arrivals) if r.arrival.at >= seconds / 2]
    done = [r for r in after if r.outcome in (Outcome.GOOD, Outcome.LATE)]
    late = [number for number, r in enumerate(done) if r.outcome is Outcome.LATE]
    return {
        "completed": len(done),
        "late": len(late),
        "last_late": late[-1] + 1 if late else 0,
        "expired": sum(r.outcome is Outcome.EXPIRED for r in after),
        "good": sum(r.outcome is Outcome.GOOD for r in after),
        "offered": len(after),
    }


def _length_cells(tasks: list[dict[str, Any]], results: list[Summary]) -> dict[str, Any]:
    cells: dict[str, dict[str, list[Summary]]] = {}
    for task, result in zip(tasks, results, strict=True):
        machine = "" if task["slow"] == 1 else ", slow machine"
        cell = cells.setdefault(f"{task['habit']}, {task['load']:g}{machine}", {})
        cell.setdefault(task["knowledge"], []).append(result)
    return {name: _compared(cell) for name, cell in cells.items()}


def _compared(cell: dict[str, list[Summary]]) -> dict[str, Any]:
    """Each kind of knowledge beside the truth, in answers and in tokens."""
    shares: dict[str, Any] = {}
    for knowledge, ours in cell.items():
        mean, error = mean_and_error([share_good(one) for one in ours])
        admitted = sum(one["good"] + one["late"] + one["expired"] for one in ours)
        broken = sum(one["late"] + one["expired"] for one in ours)
        shares[knowledge] = {
            "share": mean,
            "standard_error": error,
            "broken": broken / max(1, admitted),
            "good_tokens": sum(one["good_tokens"] for one in ours),
        }
    true = shares["true"]
    for one in shares.values():
        one["lost"] = 1 - one["share"] / true["share"]
        one["tokens_lost"] = 1 - one["good_tokens"] / true["good_tokens"]
    return shares


def _speed_cells(tasks: list[dict[str, Any]], results: list[Summary]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for task, result in zip(tasks, results, strict=True):
        cell = cells.setdefault(f"{task['load']:g}", {}).setdefault(task["speed"], {})
        for name, value in result.items():
            keep = max(cell.get(name, 0), value) if name == "last_late" else None
            cell[name] = cell.get(name, 0) + value if keep is None else keep
    return cells


def describe(summary: Summary) -> list[Block]:
    """Two tables."""
    lengths = []
    for case, cell in summary["lengths"].items():
        for knowledge, one in cell.items():
            lengths.append(
                (case, knowledge, f"{one['share']:.1%} ± {1.96 * one['standard_error']:.1%}",
                 f"{one['lost']:.1%}", f"{one['tokens_lost']:.1%}", f"{one['broken']:.2%}")
            )  # fmt: skip
    speeds = []
    for load, cell in summary["speeds"].items():
        for speed, one in cell.items():
            speeds.append(
                (f"{load}, {speed}", f"{one['good'] / one['offered']:.1%}",
                 f"{one['late'] / max(1, one['completed']):.1%}", str(one["last_late"]),
                 f"{one['expired'] / one['offered']:.1%}")
            )  # fmt: skip
    return [
        Text(
            "Lengths: callers stop at about half of their maximum (45 to 55 %), or anywhere. Load "
            "counts the work really done. `true` knows each length, `maximum` counts the most it "
            "can be, `learned` what completed requests made of theirs, to be kept with 90 or 99 %. "
            "Who stops at about half is known well enough; where a caller who stops anywhere will "
            "stop nobody can know, while the truth picks the short ones: that part stays lost. "
            f"The first {WARM_SECONDS:g} s (times the machine's slowness) are not counted."
        ),
        TableBlock(
            ("callers stop, load", "lengths", "in time", "answers lost", "tokens lost",
             "broken of admitted"),
            tuple(lengths),
            "What the gateway knows of lengths, mode Predictive",
        ),
        Text(
            f"Speed: half way through, every time becomes {SLOWDOWN} times as long. Counted are "
            "requests that arrive after it. `Fixed` goes on predicting the old speed, and has only "
            "the safety margin to learn with, or not even that; `Tracking` follows what completed "
            "requests took."
        ),
        TableBlock(
            ("load before, speed", "in time", "late of completed", "last late one is number",
             "expired"),
            tuple(speeds),
            "After a slowdown",
        ),
        Command("punctual-lab estimation"),
    ]  # fmt: skip
