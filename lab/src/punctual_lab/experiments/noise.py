"""`punctual-lab noise`: what the safety margin and the probe at pod start are worth."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from punctual_admission.outcomes import Outcome
from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    run_of,
)
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.margins import NoMargin
from punctual_lab.simulate.world import PodSpec, Record, World

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "noise"
TITLE = "Noise and a cold start: the margin and the probe"
HELP = "promises kept under noisy services, with and without margin; cold starts with a probe"
DEVIATIONS = (0.02, 0.05, 0.1, 0.2)
"""Relative standard deviation of a service time around the prediction."""
CONFIDENCES: tuple[int | None, ...] = (None, 90, 99)
"""Percent of promises that the margin is to keep; None: no margin."""
LOAD = 1.5
SECONDS = 600.0
COLD_SLOW = (1.0, 1.5, 2.25)
COLD_SECONDS = 20.0
NAMES = ("deviation", "confidence")

add_arguments = add_common_arguments
run = run_of(__name__)


def measure(options: Options) -> Summary:
    """Counts per noise and confidence; per cold start with and without a probe."""
    seeds = options.seeds(8, 3)
    seconds = SECONDS / 4 if options.quick else SECONDS
    noisy = [
        {"deviation": deviation, "confidence": confidence, "seed": seed, "seconds": seconds}
        for deviation in DEVIATIONS
        for confidence in CONFIDENCES
        for seed in seeds
    ]
    cold = [
        {"slow": slow, "probed": probed, "seed": seed}
        for slow in COLD_SLOW
        for probed in (False, True)
        for seed in seeds
    ]
    quiet = [
        {"deviation": 0.0, "confidence": None, "seed": seed, "seconds": seconds} for seed in seeds
    ]
    noise = options.run(f"{NAME}/margin", play_noise, noisy)
    (noiseless,) = _add_up(quiet, options.run(f"{NAME}/quiet", play_noise, quiet), NAMES)
    starts = options.run(f"{NAME}/probe", play_cold_start, cold)
    return {
        "margin": _add_up(noisy, noise, NAMES),
        "noiseless": noiseless,
        "probe": _add_up(cold, starts, ("slow", "probed")),
    }


def play_noise(deviation: float, confidence: int | None, seed: int, seconds: float) -> Summary:
    """Each service is off by a normal factor, cut at half and twice the prediction."""
    rng = random.Random(seed + 77)
    arrivals = [
        replace(a, slow=min(max(rng.gauss(1.0, deviation), 0.5), 2.0))
        for a in reference.reference_arrivals(LOAD, seconds, seed)
    ]
    policy = reference.reference_policy(
        reference.MODES["Predictive"], estimate={"confidencePercent": confidence or 99}
    )
    margin = NoMargin() if confidence is None else None
    pods = [PodSpec(reference.reference_model())]
    world = World(policy, pods, sojourns=margin, services=margin)
    counts = count(world.run(arrivals))
    return {**counts, "margin": world.ledger.margin}


def play_cold_start(slow: float, probed: bool, seed: int) -> Summary:
    """The first seconds of a pod that is slower than the model published for it."""
    arrivals = reference.reference_arrivals(LOAD, COLD_SECONDS, seed, slow)
    policy = reference.reference_policy(reference.MODES["Predictive"])
    believed = reference.reference_model()
    pod = PodSpec(reference.reference_model(slow), believed, ratio=slow if probed else 1.0)
    return count(World(policy, [pod]).run(arrivals))


def count(records: Iterable[Record]) -> dict[str, Any]:
    """How the requests ended."""
    counts = dict.fromkeys(("good", "late", "refused", "expired"), 0)
    for record in records:
        counts[record.outcome or Outcome.FAILED] += 1
    return {**counts, "total": sum(counts.values())}


def _add_up(
    tasks: list[dict[str, Any]], results: list[Summary], names: tuple[str, str]
) -> list[dict[str, Any]]:
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for task, result in zip(tasks, results, strict=True):
        row = rows.setdefault(
            tuple(task[name] for name in names),
            {**{name: task[name] for name in names}, **dict.fromkeys(result, 0)},
        )
        for name, value in result.items():
            row[name] += value
    runs = len(tasks) / len(rows)
    for row in rows.values():
        if "margin" in row:
            row["margin"] /= runs
    return list(rows.values())


def describe(summary: Summary) -> list[Block]:
    """Two tables."""
    margins = tuple(
        (f"{row['deviation']:.0%}, {_named(row['confidence'])}", *_shares(row),
         f"{_share_kept(row):.2%}",
         f"{_share_refused(row) - _share_refused(summary['noiseless']):+.1%}",
         f"{row['margin']:.3f}")
        for row in summary["margin"]
    )  # fmt: skip
    probes = tuple(
        (f"{row['slow']:g} times, {'probed' if row['probed'] else 'not probed'}", *_shares(row))
        for row in summary["probe"]
    )
    return [
        Text(
            f"Load {LOAD:g}, mode Predictive. Every service time is off by a random factor that "
            "nobody can know. The margin stretches predictions by a quantile of what completed "
            "requests took: it is to turn noise into earlier refusals instead of late answers. "
            "Promises kept: in time, of those admitted. More refused: than where nothing is noisy "
            "and no margin is taken, the false refusals that certainty costs."
        ),
        TableBlock(
            (
                "noise, confidence",
                "in time",
                "late of completed",
                "expired",
                "promises kept",
                "more refused",
                "last margin",
            ),
            margins,
            "What the margin is worth",
        ),
        Text(
            f"The first {COLD_SECONDS:g} s of a pod that is slower than its published model. A "
            "probe at pod start measures the speed before the first request; without it the first "
            "requests pay for the lesson."
        ),
        TableBlock(
            ("true time, start", "in time", "late of completed", "expired"),
            probes,
            "What the probe is worth",
        ),
        Command("punctual-lab noise"),
    ]


def _named(confidence: int | None) -> str:
    return "no margin" if confidence is None else f"{confidence} %"


def _share_kept(row: dict[str, Any]) -> float:
    """In time, of those admitted."""
    return float(row["good"] / max(1, row["good"] + row["late"] + row["expired"]))


def _share_refused(row: dict[str, Any]) -> float:
    return float(row["refused"] / row["total"])


def _shares(row: dict[str, Any]) -> tuple[str, str, str]:
    return (
        f"{row['good'] / row['total']:.1%}",
        f"{row['late'] / max(1, row['good'] + row['late']):.2%}",
        f"{row['expired'] / row['total']:.2%}",
    )
