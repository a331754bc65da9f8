"""`punctual-lab autoscale`: five signals for the same autoscaler, side by side on virtual time."""

from __future__ import annotations

import itertools
import math
import sys
from typing import TYPE_CHECKING, Any

from punctual_admission.outcomes import Outcome
from punctual_admission.policy import policy_from_object
from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    options_of,
    run_experiment,
)
from punctual_lab.experiments.scenario import Scenario, known_scenarios, read_scenario
from punctual_lab.experiments.tally import mean_and_error
from punctual_lab.load.retry import RETRY_BEHAVIOURS
from punctual_lab.policies import PREDICTIVE, build_policy
from punctual_lab.report.document import Block, Command, Plot, TableBlock, Text
from punctual_lab.report.plots import SERIES_COLOURS, add_axes, build_svg, new_figure, set_title
from punctual_lab.simulate.fleet import TARGETS, Fleet, Sample, Signal
from punctual_lab.simulate.hpa import SYNC_SECONDS, Autoscaler, Behaviour

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from punctual_lab.simulate.world import Record

NAME = "autoscale"
TITLE = "Which signal to scale by"
HELP = "play a load against the autoscaler's arithmetic with five signals"
MAIN = "step"
OTHERS = ("steady", "steady-small", "steady-large", "ramp", "burst", "stop", "storm")
QUIET_SHARE = 0.01
QUIET_SECONDS = 60.0
"""The pool has caught up when under 1 % of the work was refused for a minute."""
QUICK_SECONDS = 1200.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_common_arguments(parser)
    parser.add_argument(
        "--scenario",
        action="append",
        default=[],
        help=f"YAML file, or one of {', '.join(known_scenarios())}; repeatable (default: all)",
    )
    parser.add_argument(
        "--signal",
        action="append",
        default=[],
        choices=[signal.value for signal in Signal],
        help="repeatable (default: all five)",
    )
    parser.add_argument("--seeds", type=int, help="runs of each (default: 3 of step, else 1)")


def run(args: argparse.Namespace) -> int:
    """Run the scenarios; raises ValueError for a number of seeds below 1."""
    if args.seeds is not None and args.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {args.seeds}")
    options = options_of(args, scenarios=args.scenario, signals=args.signal, seeds=args.seeds)
    run_experiment(sys.modules[__name__], options)
    return 0


def measure(options: Options) -> Summary:
    """Per scenario, pod start and signal: work refused, pod-hours, changes, time to catch up."""
    names = options.extra.get("scenarios") or [MAIN, *(() if options.quick else OTHERS)]
    scenarios = {name: read_scenario(name) for name in names}
    signals = [Signal(one) for one in options.extra.get("signals") or Signal]
    seeds = {name: _seeds(options, name) for name in names}
    tasks = [
        {"scenario": name, "start": start, "signal": signal.value, "seed": seed, "most": most}
        for name, scenario in scenarios.items()
        for start in scenario.pod_starts
        for signal in signals
        for seed in seeds[name]
        for most in [QUICK_SECONDS if options.quick else math.inf]
    ]
    results = options.run(NAME, play, [_writable(task) for task in tasks])
    cells: dict[str, Any] = {}
    for task, result in zip(tasks, results, strict=True):
        by_start = cells.setdefault(task["scenario"], {}).setdefault(f"{task['start']:g}", {})
        by_start.setdefault(task["signal"], []).append(result)
    return {
        "cells": {
            name: {
                start: {signal: _cell(runs) for signal, runs in signals.items()}
                for start, signals in by_start.items()
            }
            for name, by_start in cells.items()
        },
        "scenarios": {name: scenario.description for name, scenario in scenarios.items()},
        "seeds": {name: len(drawn) for name, drawn in seeds.items()},
    }


def _seeds(options: Options, name: str) -> list[int]:
    given = options.extra.get("seeds")
    return options.seeds(given or (3 if name == MAIN else 1), given or 1)


def _writable(task: dict[str, Any]) -> dict[str, Any]:
    """The task as JSON has it: an unlimited length as None."""
    return task | {"most": None if math.isinf(task["most"]) else task["most"]}


def play(scenario: str, start: float, signal: str, seed: int, most: float | None) -> Summary:
    """One run: an hour or so of requests through the gateway's admission code."""
    plan = read_scenario(scenario)
    seconds = plan.seconds if most is None else min(plan.seconds, most)
    fleet = build_fleet(plan, start, Signal(signal), seconds, seed)
    arrivals = [arrival for arrival in plan.arrivals(seed) if arrival.at < seconds]
    records = fleet.run(arrivals)
    return summarise(plan, records, fleet, seconds)


def build_fleet(plan: Scenario, start: float, signal: Signal, seconds: float, seed: int) -> Fleet:
    """The pool of a scenario."""
    spec = build_policy(PREDICTIVE, deadline_ms=int(plan.deadline * 1000), queue_limit=8)
    return Fleet(
        policy_from_object(spec),
        reference.reference_model(plan.slow),
        Autoscaler(
            plan.minimum, plan.maximum, Behaviour(plan.tolerance, down_window=plan.down_window)
        ),
        signal,
        pod_start=start,
        seconds=seconds,
        pods=plan.pods,
        target=plan.targets.get(signal.value),
        retry=RETRY_BEHAVIOURS[plan.retries]() if plan.retries != "none" else None,
        seed=seed,
    )


def summarise(plan: Scenario, records: list[Record], fleet: Fleet, seconds: float) -> Summary:
    """What one run came to; work in GPU-seconds."""
    model = reference.reference_model(plan.slow)
    offered = [0.0] * (math.ceil(seconds / SYNC_SECONDS) + 1)
    refused = list(offered)
    counts: dict[str, int] = dict.fromkeys([outcome.value for outcome in Outcome], 0)
    for record in records:
        if record.attempt > 1:
            continue
        last = _last(record)
        counts[last.outcome or ""] += 1
        place = int(record.arrival.at / SYNC_SECONDS)
        cost = model.cost(record.arrival.prompt_tokens, record.arrival.max_tokens)
        offered[place] += cost
        if last.outcome in (Outcome.REFUSED, Outcome.EXPIRED):
            refused[place] += cost
    begun = plan.segments[0].seconds if len(plan.segments) > 1 else 0.0
    return {
        "counts": counts,
        "offered_work": sum(offered),
        "refused_work": sum(refused),
        "refused_share": sum(refused) / max(sum(offered), 1e-9),
        "pod_hours": fleet.pod_seconds / 3600,
        "changes": _changes(fleet.samples),
        "peak": max(sample.pods for sample in fleet.samples),
        "last": fleet.samples[-1].pods,
        "caught_up": _caught_up(offered, refused, begun),
        "at": [sample.at for sample in fleet.samples],
        "pods": [sample.pods for sample in fleet.samples],
        "refusing": [r / o if o else 0.0 for r, o in zip(refused, offered, strict=True)],
    }


def _last(record: Record) -> Record:
    while record.retry is not None:
        record = record.retry
    return record


def _changes(samples: list[Sample]) -> int:
    counts = [sample.pods for sample in samples]
    return sum(before != after for before, after in itertools.pairwise(counts))


def _caught_up(offered: list[float], refused: list[float], begun: float) -> float | None:
    """Seconds from the first change of the load to the first quiet minute; None: never."""
    length = int(QUIET_SECONDS / SYNC_SECONDS)
    first = int(begun / SYNC_SECONDS)
    for place in range(first, len(offered) - length):
        work = sum(offered[place : place + length])
        if sum(refused[place : place + length]) <= QUIET_SHARE * work:
            return (place - first) * SYNC_SECONDS
    return None


def _cell(runs: list[Summary]) -> Summary:
    """The means over the seeds, the standard error of the refused share, and one run's course."""
    share, error = mean_and_error([run["refused_share"] for run in runs])
    caught = [run["caught_up"] for run in runs]
    known = [one for one in caught if one is not None]
    return {
        "refused_share": share,
        "standard_error": error,
        "caught_up": sum(known) / len(known) if len(known) == len(caught) else None,
        **{name: _mean(run[name] for run in runs) for name in ("pod_hours", "changes", "peak")},
        "all_changes": sorted(run["changes"] for run in runs),
        "late": sum(run["counts"]["late"] for run in runs),
        "total": sum(sum(run["counts"].values()) for run in runs),
        "course": {name: runs[0][name] for name in ("at", "pods", "refusing")},
    }


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def describe(summary: Summary) -> list[Block]:
    """One table per scenario and pod start, and the course of the pods for the main one."""
    blocks: list[Block] = [
        Text(
            "The gateway's own admission and demand code, pods that come one start time after they "
            "are asked for, and the arithmetic of the HorizontalPodAutoscaler (every 15 s, 10 % "
            "tolerance, 300 s before it scales down, at most 20 pods). One pod does one GPU-second "
            "of work per second."
        )
    ]
    for name, by_start in summary["cells"].items():
        for start, signals in by_start.items():
            about = f"{summary['scenarios'][name]}; seeds: {summary['seeds'][name]}"
            blocks.append(_table(about, name, start, signals))
        if name == MAIN:
            blocks += [_plot(name, start, signals) for start, signals in by_start.items()]
    blocks.append(
        Text(
            "A bounded signal saturates: what is admitted waits no longer than its deadline "
            "allows, a share ends at 1, a pod is busy all of the time. Offered work counts "
            "what was refused too, so one look says how many pods are needed."
        )
    )
    return [*blocks, Command("punctual-lab autoscale")]


def _table(description: str, name: str, start: str, signals: dict[str, Any]) -> TableBlock:
    rows = []
    for signal, cell in signals.items():
        kind, target = TARGETS[Signal(signal)]
        caught = "never" if cell["caught_up"] is None else f"{cell['caught_up']:.0f} s"
        rows.append(
            (
                f"{signal} ({target:g}, {kind.value})",
                f"{cell['refused_share']:.1%} ± {1.96 * cell['standard_error']:.1%}",
                f"{cell['pod_hours']:.2f}",
                _spread(cell["all_changes"]),
                f"{cell['peak']:.0f}",
                caught,
                f"{cell['late']} of {cell['total']}",
            )
        )
    columns = (
        "signal (target)", "work refused", "pod-hours", "changes", "most pods",
        "under 1 % refused after", "late",
    )  # fmt: skip
    return TableBlock(columns, tuple(rows), f"{name}, pod start {start} s: {description}")


def _spread(counts: list[int]) -> str:
    """Mean and range of the runs' counts."""
    mean, least, most = sum(counts) / len(counts), counts[0], counts[-1]
    return f"{most}" if least == most else f"{mean:.1f} ({least} - {most})"


def _plot(name: str, start: str, signals: dict[str, Any]) -> Plot:
    figure = new_figure(9.2, 5.2)
    pods, refused = add_axes(figure, 2, 1, sharex=True)
    for index, (signal, cell) in enumerate(signals.items()):
        course = cell["course"]
        colour = SERIES_COLOURS[index]
        minutes = [at / 60 for at in course["at"]]
        pods.step(minutes, course["pods"], where="post", label=signal, color=colour)
        refused.plot(minutes, course["refusing"][: len(minutes)], color=colour, linewidth=1)
    set_title(pods, "pods")
    set_title(refused, "share of the work refused")
    refused.set_xlabel("minutes")
    refused.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    above = {"loc": "lower right", "bbox_to_anchor": (1.0, 0.98), "ncols": 5}
    pods.legend(**above, handlelength=1.0, columnspacing=1.0, frameon=False)
    return Plot(
        build_svg(figure, f"autoscale-{name}-{start}"),
        f"The pods that each signal leads to, pod start {start} s",
        "Above the number of pods over time, below the share of the work that is refused.",
    )
