"""`punctual-lab replay`: a live run's arrivals and service times through the simulator.

Reads a folder that `compare` or `demo` wrote: for each policy its rows. Every request arrives when
it was sent (half of the time that was neither queue nor service later) and takes the time between
the end of the request before it, or its arrival, and its own end; one that was not served takes
what the last served ones would have made of it. The gateway's belief is the line through its first
predictions, so the simulator learns speed and margin as the gateway did. One slot is assumed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from punctual_admission.outcomes import Outcome
from punctual_admission.policy import Mode, policy_from_object
from punctual_admission.service_time import ServiceModel
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    options_of,
    run_experiment,
)
from punctual_lab.experiments.tally import tally
from punctual_lab.load.rows import RequestRow, read_rows
from punctual_lab.measures import fit_line, median
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.world import Arrival, PodSpec, World

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

NAME = "replay"
TITLE = "A live run, played again on virtual time"
HELP = "replay a compare or demo folder in the simulator, and count what differs"
RECENT = 5
"""How many served requests tell the speed for one that was not served."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Changes to what was: None and 1 leave it."""

    pods: int = 1
    deadline_ms: int | None = None
    mode: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the folder and what to change."""
    parser.add_argument("folder", type=Path, help="what compare or demo wrote: reports/demo")
    parser.add_argument("--pods", type=int, default=1, help="what if there were so many pods")
    parser.add_argument("--deadline-ms", type=int, help="what if the deadline had been this")
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], help="what if the mode")
    parser.add_argument("--limit", type=float, help="exit 1 above this share of differences")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Replay; 1 when a run differs by more than `--limit`."""
    if args.pods < 1:
        raise ValueError(f"--pods must be at least 1, got {args.pods}")
    what_if = WhatIf(args.pods, args.deadline_ms, args.mode)
    options = options_of(args, folder=args.folder, what_if=what_if)
    summary = run_experiment(sys.modules[__name__], options)
    worst = max(one["share_different"] for one in summary["runs"].values())
    return int(args.limit is not None and worst > args.limit)


def measure(options: Options) -> Summary:
    """Live and simulated counts per policy, and the share of requests that ended differently."""
    folder, what_if = options.extra["folder"], options.extra["what_if"]
    runs = {}
    for path in sorted((folder / "policies").glob("*.yaml")):
        rows_path = folder / "rows" / f"{path.stem}.jsonl"
        if rows_path.exists():
            runs[path.stem] = replay_run(path, read_rows(rows_path), what_if)
    if not runs:
        raise ValueError(
            f"{folder} holds no runs: there must be policies/NAME.yaml and rows/NAME.jsonl"
        )
    changes = {
        "pods": what_if.pods, "deadline_ms": what_if.deadline_ms, "mode": what_if.mode,
    }  # fmt: skip
    return {"runs": runs, "folder": str(folder), "what_if": changes}


def replay_run(policy_path: Path, rows: Sequence[RequestRow], what_if: WhatIf) -> dict[str, Any]:
    """One policy's rows through the simulator. Raises ValueError if nothing was served."""
    written = yaml.safe_load(policy_path.read_text(encoding="utf-8"))
    if what_if.mode is not None:
        written["spec"]["mode"] = what_if.mode
    policy = policy_from_object(written)
    default_ms = what_if.deadline_ms or policy.deadline.default_milliseconds
    model = fit_model(rows)
    arrivals = arrivals_of_rows(rows, model, default_ms, forced=what_if.deadline_ms is not None)
    pods = [PodSpec(model, believed=fit_belief(rows) or model)] * what_if.pods
    records = World(policy, pods).run(arrivals)
    different = sum(
        record.outcome is not row.outcome
        for record, row in zip(records, sorted(rows, key=lambda r: r.sent_at), strict=True)
    )
    live = dict.fromkeys((outcome.value for outcome in Outcome), 0)
    for row in rows:
        live[row.outcome] += 1
    return {
        "live": live,
        "simulated": {name: tally(records)[name] for name in live},
        "requests": len(rows),
        "different": different,
        "share_different": different / len(rows),
    }


def fit_model(rows: Sequence[RequestRow]) -> ServiceModel:
    """The service line of the answered requests: base + tokens * step, in seconds."""
    served = [row for row in rows if _served(row)]
    if not served:
        raise ValueError("no request of the run was served: there must be service times to replay")
    sizes = sorted({row.tokens_wanted for row in served})
    times = [
        median([(r.service_ms or 0.0) / 1e3 for r in served if r.tokens_wanted == size])
        for size in sizes
    ]
    if len(sizes) == 1:
        return ServiceModel((times[0] / sizes[0],), prefill_base=times[0] / sizes[0])
    line = fit_line(sizes, times)
    return ServiceModel((line.slope,), prefill_base=max(line.base + line.slope, 0.0))


def fit_belief(rows: Sequence[RequestRow]) -> ServiceModel | None:
    """The line through the gateway's first predictions; None where it told too few."""
    told: dict[int, float] = {}
    for row in sorted(rows, key=lambda r: r.sent_at):
        if row.predicted_ms is not None and row.predicted_wait_ms is not None:
            told.setdefault(row.tokens_wanted, (row.predicted_ms - row.predicted_wait_ms) / 1e3)
    if len(told) < 2 or min(told.values()) <= 0:
        return None
    line = fit_line(list(told), list(told.values()))
    return ServiceModel((line.slope,), prefill_base=max(line.base + line.slope, 0.0))


def measured_services(rows: Sequence[RequestRow]) -> dict[int, float]:
    """Seconds of engine time of each served request, by its index.

    From end to end, so that what lies between two requests belongs to the second, and errors do
    not add up over a busy period.
    """
    spans = [
        (row.sent_at + row.latency_ms / 1e3 - _travel(row), row) for row in rows if _served(row)
    ]
    spans.sort(key=lambda span: span[0])
    services, before = {}, 0.0
    for end, row in spans:
        begun = max(before, row.sent_at + _travel(row))
        services[row.index] = max(end - begun, 1e-6)
        before = end
    return services


def _travel(row: RequestRow) -> float:
    """Seconds of one way between client and gateway: half of what is neither queue nor service."""
    if not _served(row):
        return 0.0
    rest = row.latency_ms - (row.queue_ms or 0.0) - (row.service_ms or 0.0)
    return max(rest, 0.0) / 2e3


def arrivals_of_rows(
    rows: Sequence[RequestRow], model: ServiceModel, default_ms: int, *, forced: bool = False
) -> list[Arrival]:
    """The rows as arrivals in the order of sending, each with its own true speed."""
    services, recent, arrivals = measured_services(rows), list[float](), []
    travel = median([_travel(row) for row in rows if _served(row)])
    for row in sorted(rows, key=lambda r: r.sent_at):
        if row.index in services:
            slow = services[row.index] / model.alone(0, row.tokens_wanted)
            recent = [*recent[1 - RECENT :], slow]
        else:
            slow = median(recent) if recent else 1.0
        budget_ms = default_ms if forced or row.deadline_ms is None else row.deadline_ms
        plain = Arrival(row.sent_at + travel, 0, row.tokens_wanted, budget_ms / 1e3)
        arrivals.append(replace(plain, slow=slow))
    return arrivals


def _served(row: RequestRow) -> bool:
    return row.outcome in (Outcome.GOOD, Outcome.LATE) and bool(row.service_ms)


def describe(summary: Summary) -> list[Block]:
    """Live beside simulated."""
    words = (Outcome.GOOD, Outcome.LATE, Outcome.REFUSED, Outcome.EXPIRED)
    rows = tuple(
        (
            name,
            *(f"{one['live'][word]} / {one['simulated'][word]}" for word in words),
            f"{one['different']} of {one['requests']} ({one['share_different']:.1%})",
        )
        for name, one in summary["runs"].items()
    )
    changed = {name: value for name, value in summary["what_if"].items() if value not in (None, 1)}
    what_if = ", ".join(f"{name} = {value}" for name, value in changed.items())
    return [
        Text(
            f"Arrivals and measured service times of `{summary['folder']}`, decided again by the "
            f"same code on virtual time. What if: {what_if or 'nothing was changed'}."
        ),
        TableBlock(
            ("run", *(word.value for word in words), "ended differently"),
            rows,
            "Live / simulated, requests",
        ),
        Command(f"punctual-lab replay {summary['folder']}"),
    ]
