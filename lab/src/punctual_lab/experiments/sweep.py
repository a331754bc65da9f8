"""`punctual-lab sweep`: the modes over ten loads, on a fast and on a slow machine."""

from __future__ import annotations

from typing import Any

from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    run_of,
)
from punctual_lab.experiments.optimum import bound_on_time
from punctual_lab.experiments.plots import draw_lines
from punctual_lab.experiments.tally import (
    add_tallies,
    mean_and_error,
    share_good,
    share_late,
    share_of_class,
    tally,
)
from punctual_lab.report.document import Block, Command, Plot, TableBlock, Text
from punctual_lab.report.plots import build_svg
from punctual_lab.simulate.world import PodSpec, World

NAME = "sweep"
TITLE = "Who is answered in time, from half to three times the load"
HELP = "compare the modes over ten loads and two speeds on virtual time"
LOADS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0)
QUICK_LOADS = (0.5, 1.0, 2.0, 3.0)
SPEEDS = {"fast": 1.0, "slow": reference.SLOW}
SECONDS = 600.0
BOUND = "Bound"
REFERENCE = (
    ("fast", 1.0, "Bounded", 0.86),
    ("slow", 1.0, "Bounded", 0.58),
    ("fast", 1.0, "Deadline", 0.89),
    ("slow", 1.0, "Deadline", 0.93),
    ("fast", 1.0, "Predictive", 0.97),
    ("slow", 1.0, "Predictive", 0.93),
    ("fast", 2.0, "Predictive", 0.83),
    ("fast", 2.0, "Deadline", 0.52),
)
"""On-time shares that were measured on real machines: speed, load, mode, share."""

add_arguments = add_common_arguments
run = run_of(__name__)


def measure(options: Options) -> Summary:
    """Shares on time per speed, load and mode, beside the clairvoyant bound."""
    loads = QUICK_LOADS if options.quick else LOADS
    seconds = SECONDS / 4 if options.quick else SECONDS
    tasks = [
        {"load": load, "seed": seed, "slow": slow, "seconds": seconds}
        for slow in SPEEDS.values()
        for load in loads
        for seed in options.seeds(20, 3)
    ]
    results = options.run(NAME, play, tasks)
    cells = {
        speed: {
            f"{load:g}": _cell(
                [
                    result
                    for task, result in zip(tasks, results, strict=True)
                    if task["load"] == load and task["slow"] == slow
                ]
            )
            for load in loads
        }
        for speed, slow in SPEEDS.items()
    }
    return {"cells": cells, "virtual_seconds": seconds, "loads": list(loads)}


def play(load: float, seed: int, slow: float, seconds: float) -> Summary:
    """All modes on one seeded workload, and the most that could have been on time."""
    arrivals = reference.reference_arrivals(load, seconds, seed, slow)
    model = reference.reference_model(slow)
    modes = {
        name: tally(World(reference.reference_policy(mode), [PodSpec(model)]).run(arrivals))
        for name, mode in reference.MODES.items()
    }
    return {"modes": modes, "bound": bound_on_time(arrivals, model), "total": len(arrivals)}


def _cell(results: list[Summary]) -> dict[str, Any]:
    """One load at one speed: per mode the summed counts, the mean share and its error."""
    modes: dict[str, Any] = {}
    for name in reference.MODES:
        tallies = [result["modes"][name] for result in results]
        mean, error = mean_and_error([share_good(one) for one in tallies])
        summed = add_tallies(tallies)
        modes[name] = {
            **summed,
            "share": mean,
            "standard_error": error,
            "late_of_completed": share_late(summed),
            "of_bound": summed["good"] / max(1, sum(result["bound"] for result in results)),
        }
    bounds = [result["bound"] / max(1, result["total"]) for result in results]
    mean, error = mean_and_error(bounds)
    return {"modes": modes, "bound": {"share": mean, "standard_error": error}}


def describe(summary: Summary) -> list[Block]:
    """Tables per speed, a plot, the price for long requests, and the reference beside it."""
    blocks: list[Block] = [
        Text(
            "One model, one request at a time, lengths 4, 16 and 64 tokens, deadline 2 s, Poisson "
            f"arrivals over {summary['virtual_seconds']:g} virtual seconds. Load 1 is as much work "
            "as the machine can do. The bound is the most that any schedule that knows the future "
            "could have had on time (exact here: `punctual-lab bound`)."
        )
    ]
    for speed in summary["cells"]:
        blocks += [_shares(summary, speed), _plot(summary, speed)]
    return [*blocks, _price(summary), _against_reference(summary), Command("punctual-lab sweep")]


def _shares(summary: Summary, speed: str) -> TableBlock:
    rows = []
    for load, cell in summary["cells"][speed].items():
        shares = [f"{one['share']:.1%}" for one in cell["modes"].values()]
        best = cell["modes"]["Predictive + displacement"]["of_bound"]
        rows.append((load, *shares, f"{cell['bound']['share']:.1%}", f"{best:.1%}"))
    columns = ("load", *reference.MODES, "bound", "displacement of bound")
    caption = f"Share of all requests answered in time, {speed} machine"
    return TableBlock(columns, tuple(rows), caption)


def _plot(summary: Summary, speed: str) -> Plot:
    cells = summary["cells"][speed]
    series = {
        name: [cell["modes"][name]["share"] for cell in cells.values()] for name in reference.MODES
    }
    series[BOUND] = [cell["bound"]["share"] for cell in cells.values()]
    figure = draw_lines([float(load) for load in cells], series, "load", "answered in time")
    return Plot(
        build_svg(figure, f"sweep-{speed}"),
        f"Answered in time over load, {speed} machine",
        "One line a mode; the bound lies above all of them.",
    )


def _price(summary: Summary) -> TableBlock:
    """What each size class gets at the fast speed: who wins by starving whom."""
    rows = []
    for load, cell in summary["cells"]["fast"].items():
        for name in ("Deadline", "Predictive", "Predictive + displacement"):
            one = cell["modes"][name]
            shares = [f"{share_of_class(one, size):.0%}" for size in ("4", "16", "64")]
            tokens = one["good_tokens"] / one["total"]
            rows.append((f"{load}, {name}", *shares, f"{tokens:.2f}"))
    columns = ("load and mode", "4 tokens", "16 tokens", "64 tokens", "good tokens a request")
    return TableBlock(columns, tuple(rows), "The price for long requests: on time per size class")


def _against_reference(summary: Summary) -> TableBlock:
    rows = []
    for speed, load, mode, share in REFERENCE:
        cell = summary["cells"][speed].get(f"{load:g}")
        if cell is None:
            continue
        one = cell["modes"][mode]
        error = 1.96 * one["standard_error"]
        rows.append(
            (f"{mode}, load {load:g}, {speed}", f"{share:.0%}", f"{one['share']:.1%} ± {error:.1%}")
        )
    columns = ("case", "reference", "simulated, 95 %")
    return TableBlock(columns, tuple(rows), "Against figures measured on real machines")
