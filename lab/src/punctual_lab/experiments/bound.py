"""`punctual-lab bound`: how close to the best possible, and whether the bound is right."""

from __future__ import annotations

import random
import sys
from itertools import islice, permutations
from typing import TYPE_CHECKING

from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    options_of,
    run_experiment,
)
from punctual_lab.experiments.optimum import EPSILON, bound_on_time, most_on_time
from punctual_lab.experiments.plots import draw_lines
from punctual_lab.experiments.tally import mean_and_error, tally
from punctual_lab.report.document import Block, Command, Note, Plot, TableBlock, Text
from punctual_lab.report.plots import build_svg
from punctual_lab.simulate.world import PodSpec, World

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

NAME = "bound"
TITLE = "How close to a schedule that knows the future"
HELP = "compare the modes with the clairvoyant optimum, and that with brute force"
LOADS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0)
QUICK_LOADS = (0.5, 1.0, 2.0, 3.0)
SPEEDS = {"fast": 1.0, "slow": reference.SLOW}
MODES = ("Deadline", "Predictive", "Predictive + displacement")
SECONDS = 600.0
WINDOWS = 100
WINDOW_SIZE = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run it; 1 when brute force disagrees with the bound."""
    summary = run_experiment(sys.modules[__name__], options_of(args))
    return int(summary["brute_force"]["agree"] != summary["brute_force"]["windows"])


def measure(options: Options) -> Summary:
    """On-time share of the bound per speed, load and mode; agreement with brute force."""
    loads, seeds = QUICK_LOADS if options.quick else LOADS, options.seeds(20, 4)
    seconds = SECONDS / 4 if options.quick else SECONDS
    tasks = [
        {"load": load, "seed": seed, "slow": slow, "seconds": seconds}
        for slow in SPEEDS.values()
        for load in loads
        for seed in seeds
    ]
    results = iter(options.run(NAME, play, tasks))
    cells = {
        speed: {f"{load:g}": _cell(list(islice(results, len(seeds)))) for load in loads}
        for speed in SPEEDS
    }
    return {"cells": cells, "brute_force": check_brute_force(options.seed)}


def _cell(results: list[Summary]) -> dict[str, tuple[float, float]]:
    """One load at one speed: per mode the mean share of the bound and its error."""
    return {
        name: mean_and_error([one["good"][name] / one["bound"] for one in results])
        for name in MODES
    }


def play(load: float, seed: int, slow: float, seconds: float) -> Summary:
    """On time per mode, and the bound."""
    arrivals = reference.reference_arrivals(load, seconds, seed, slow)
    model = reference.reference_model(slow)
    good = {}
    for name in MODES:
        policy = reference.reference_policy(reference.MODES[name])
        good[name] = tally(World(policy, [PodSpec(model)]).run(arrivals))["good"]
    return {"good": good, "bound": bound_on_time(arrivals, model)}


def check_brute_force(seed: int) -> dict[str, int]:
    """Small windows in which every order of every subset is tried."""
    rng = random.Random(seed)
    agree = 0
    for _ in range(WINDOWS):
        budget = rng.uniform(0.5, 3.0)
        releases = [rng.uniform(0, 4) for _ in range(WINDOW_SIZE)]
        jobs = [(at, rng.choice([0.1, 0.3, 1.2]), at + budget) for at in releases]
        agree += most_on_time(jobs) == try_all_orders(jobs)
    return {"windows": WINDOWS, "requests": WINDOW_SIZE, "agree": agree}


def try_all_orders(jobs: Sequence[tuple[float, float, float]]) -> int:
    """Most on time over all orders, each job skipped where it would be late."""
    best = 0
    for order in permutations(jobs):
        time, count = float("-inf"), 0
        for release, service, deadline in order:
            end = max(time, release) + service
            if end <= deadline + EPSILON:
                time, count = end, count + 1
        best = max(best, count)
    return best


def describe(summary: Summary) -> list[Block]:
    """Shares of the bound as a table and a plot for each machine."""
    checked = summary["brute_force"]
    blocks: list[Block] = [
        Text(
            "The bound is the largest number of requests that any schedule could have had on time, "
            "all arrivals and lengths known in advance: one machine, no preemption, equal "
            "deadlines. It is exact for that case, by dynamic programming over the number on time "
            "(see `punctual_lab.experiments.optimum`)."
        ),
        Note(
            f"Brute force over all orders agreed in {checked['agree']} of {checked['windows']} "
            f"windows of {checked['requests']} requests."
        ),
    ]
    for speed, cells in summary["cells"].items():
        blocks += _shares(speed, cells)
    return [*blocks, Command("punctual-lab bound")]


def _shares(speed: str, cells: Summary) -> list[Block]:
    rows = tuple(
        (load, *(f"{mean:.2%} ± {1.96 * error:.2%}" for mean, error in cell.values()))
        for load, cell in cells.items()
    )
    series = {name: [cell[name][0] for cell in cells.values()] for name in MODES}
    lines = draw_lines([float(load) for load in cells], series, "load", "share of the bound")
    caption = f"Answered in time, share of the clairvoyant bound, {speed} machine"
    return [
        TableBlock(("load", *MODES), rows, caption),
        Plot(
            build_svg(lines, f"bound-{speed}"),
            f"On-time answers as a share of the most that was possible, {speed} machine",
            "One line a mode over the load.",
        ),
    ]
