"""`punctual-lab replay`: decisions of a live run, made again exactly, and the run simulated.

Takes decision logs: of one gateway (`punctual-gateway --decision-log FILE`), or those of a folder
that `compare` or `demo` wrote. Each log is used twice.

Exactly: every call that the gateway made is made again on a ledger of its own, and every decision
has to come out the same, to the last digit.

Simulated: only what came from outside is kept (arrivals, true service times, clients that left,
pods that came and went, swaps of the policy); queue, engines, estimator and margin are simulated.
How many requests end differently is how far the simulator is from the live gateway, and with
something changed ("what if") what the change would have done.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from punctual_admission.fields import camel
from punctual_admission.outcomes import Outcome
from punctual_admission.policy import Mode, Policy, policy_from_spec
from punctual_lab.compare.plan import ComparisonPlan
from punctual_lab.compare.runner import run_comparison
from punctual_lab.decision_log import read_lines
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    options_of,
    run_experiment,
)
from punctual_lab.experiments.tally import tally
from punctual_lab.policies import DEADLINE, DISPLACING, PREDICTIVE
from punctual_lab.processes import Stack
from punctual_lab.report.document import Block, Command, Note, TableBlock, Text
from punctual_lab.simulate.recorded import History, RecordedWorld, read_history

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

NAME = "replay"
TITLE = "A live run, decided again and simulated"
HELP = "make each decision of a log again exactly; simulate its run, as it was and what if"
SECONDS, QUICK_SECONDS = 40.0, 8.0
LIVE_MODES = (DEADLINE, PREDICTIVE, DISPLACING)
"""Those whose decisions hang on predictions."""
SIMULATED_ENGINE = ("--engine=sim", "--sim-step-ms=8")
ALWAYS_SHOWN = (Outcome.GOOD, Outcome.LATE, Outcome.REFUSED, Outcome.EXPIRED)


Ends = dict[str, Outcome | None]
"""How each request ended, by its id."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Changes to what was; None and an empty tuple leave it."""

    pods: int | None = None
    slots: int | None = None
    deadline_ms: int | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    """Fields of the policy's spec by their paths, with their values."""

    @property
    def changes(self) -> dict[str, Any]:
        """What is changed, by name."""
        named = {"pods": self.pods, "slots": self.slots, "deadline_ms": self.deadline_ms}
        return {name: one for name, one in named.items() if one is not None} | dict(self.settings)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the log and what to change."""
    parser.add_argument(
        "path",
        type=Path,
        nargs="?",
        help="a decision log, or what compare or demo wrote (reports/demo); absent: a live run of "
        "its own, whose engine sleeps instead of computing",
    )
    parser.add_argument("--pods", type=int, help="what if there were so many pods, from the start")
    parser.add_argument("--slots", type=int, help="what if each ran so many requests at once")
    parser.add_argument("--deadline-ms", type=int, help="what if every deadline had been this")
    parser.add_argument("--mode", choices=[mode.value for mode in Mode], help="what if the mode")
    parser.add_argument("--confidence", type=int, help="what if so many percent were promised")
    parser.add_argument(
        "--change",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        help="what if this field of the policy's spec: --change queue.displacement=Longest",
    )
    parser.add_argument("--limit", type=float, help="exit 1 above this share of differences")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Replay; 1 when a decision is not made again as logged, or `--limit` is passed."""
    what_if = read_what_if(args)
    options = options_of(args, path=args.path, what_if=what_if)
    runs = run_experiment(sys.modules[__name__], options)["runs"].values()
    exact = all(not one["exact"]["differences"] for one in runs)
    worst = max(one["share_different"] for one in runs)
    return int(not exact or (args.limit is not None and worst > args.limit))


def read_what_if(args: argparse.Namespace) -> WhatIf:
    """The changes that the arguments ask for. Raises ValueError."""
    for name in ("pods", "slots", "deadline_ms"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    settings = [_read_setting(one) for one in args.change]
    if args.mode is not None:
        settings.append(("mode", args.mode))
    if args.confidence is not None:
        settings.append(("estimate.confidencePercent", args.confidence))
    return WhatIf(args.pods, args.slots, args.deadline_ms, tuple(settings))


def _read_setting(given: str) -> tuple[str, Any]:
    path, equals, value = given.partition("=")
    if not path or not equals:
        raise ValueError(f"--change must be PATH=VALUE, got {given!r}")
    return path, yaml.safe_load(value)


def measure(options: Options) -> Summary:
    """Each log decided again and simulated."""
    path, what_if = options.extra.get("path"), options.extra.get("what_if", WhatIf())
    if path is None:
        path = run_live(options)
    runs = {log.stem: replay_log(log, what_if) for log in find_logs(path)}
    return {"runs": runs, "path": str(path), "what_if": what_if.changes}


def run_live(options: Options) -> Path:
    """A comparison of its own; returns its folder."""
    seconds = QUICK_SECONDS if options.quick else SECONDS
    plan = ComparisonPlan(
        seconds=seconds,
        seed=options.seed,
        modes=LIVE_MODES,
        service_repeats=1,
        probe_repeats=1,
        burst_rounds=2,
        server_arguments=SIMULATED_ENGINE,
    )
    folder = options.folder / NAME / "live"
    with Stack(folder / "logs") as stack:
        run_comparison(plan, folder, stack, options.console)
    return folder


def find_logs(path: Path) -> list[Path]:
    """A log itself, or the logs of a folder. Raises ValueError where there is none."""
    if path.is_file():
        return [path]
    logs = sorted((path / "decisions").glob("*.jsonl"))
    if not logs:
        raise ValueError(f"{path} must be a decision log or hold decisions/NAME.jsonl")
    return logs


def replay_log(path: Path, what_if: WhatIf) -> dict[str, Any]:
    """One log. Raises ValueError where it holds no decisions."""
    history = read_history(read_lines(path))
    decided = [visit for visit in history.visits if visit.outcome is not None]
    if not decided:
        raise ValueError(f"{path} must hold at least one request that ended")
    simulated, whole = _simulate(history, WhatIf()), _simulate(history, WhatIf(), whole=True)
    ends: Ends = {visit.request.id: visit.outcome for visit in decided}
    different = _differences(ends, simulated["ends"])
    result = {
        "exact": describe_exactness(history),
        "live": _count(ends),
        "simulated": _count(simulated["ends"]),
        "requests": len(ends),
        "different": different,
        "share_different": different / len(ends),
        "different_whole": _differences(ends, whole["ends"]),
    }
    if what_if.changes:
        changed = _simulate(history, what_if)
        result["what_if"] = _count(changed["ends"]) | {"tally": changed["tally"]}
        result["changed"] = _differences(simulated["ends"], changed["ends"])
    return result


def _differences(ends: Ends, others: Ends) -> int:
    return sum(others.get(name) is not end for name, end in ends.items())


def describe_exactness(history: History) -> dict[str, Any]:
    """How the log was lived again."""
    player = history.player
    return {
        "decisions": player.decisions,
        "calls": player.calls,
        "checkpoints": player.checkpoints,
        "skipped": player.skipped,
        "dropped": player.dropped,
        "written_by": history.checkpoint.get("version", ""),
        "differences": [dataclasses.asdict(one) for one in player.differences],
    }


def _simulate(history: History, what_if: WhatIf, *, whole: bool = False) -> dict[str, Any]:
    alter = partial(change_policy, settings=what_if.settings)
    world = RecordedWorld(history, pods=what_if.pods, slots=what_if.slots, alter=alter, whole=whole)
    budget = None if what_if.deadline_ms is None else what_if.deadline_ms / 1000
    names = [visit.request.id for visit in history.visits]
    records = world.play(budget)
    ends = {
        name: record.outcome
        for name, record, visit in zip(names, records, history.visits, strict=True)
        if visit.outcome is not None
    }
    return {"ends": ends, "tally": tally(records)}


def _count(ends: Ends) -> dict[str, int]:
    counted = dict.fromkeys((outcome.value for outcome in Outcome), 0)
    for end in ends.values():
        if end is not None:
            counted[end.value] += 1
    return counted


def change_policy(policy: Policy, settings: Sequence[tuple[str, Any]]) -> Policy:
    """The policy with fields of its spec set; raises PolicyError as for any invalid policy."""
    if not settings:
        return policy
    spec = _spec_of(policy)
    for path, value in settings:
        *sections, name = path.split(".")
        inner = spec
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    return policy_from_spec(spec)


def _spec_of(value: Any) -> Any:
    """A policy as the `spec` that it came from, with all defaults."""
    if dataclasses.is_dataclass(value):
        given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {camel(name): _spec_of(one) for name, one in given.items() if one is not None}
    if isinstance(value, tuple):
        return [_spec_of(one) for one in value]
    return value.value if isinstance(value, StrEnum) else value


def describe(summary: Summary) -> list[Block]:
    """Exactness, then live beside simulated, then what if."""
    runs = summary["runs"]
    blocks: list[Block] = [
        Text(
            f"The decision logs of `{summary['path']}`. Every call that the gateway made was made "
            "again on a ledger of its own, and every decision compared, number by number."
        ),
        _exactness(runs),
    ]
    blocks += [
        Note(f"{name}: {_first_difference(one['exact'])}")
        for name, one in runs.items()
        if one["exact"]["differences"]
    ]
    blocks += [
        Text(
            "The same runs simulated: arrivals, true service times, clients that left, pods and "
            "policies are the log's; queue, engines, estimator and margin are the simulator's. "
            "The last column keeps the whole time of each service, and not when each token came: "
            "the forecast then knows less exactly how far a running answer is."
        ),
        _outcomes(runs, "live", "simulated", "different", "Live / simulated, requests", whole=True),
    ]
    if summary["what_if"]:
        changes = ", ".join(f"{name} = {value}" for name, value in summary["what_if"].items())
        blocks.append(Text(f"What if {changes}:"))
        caption = "Simulated as it was / with the change, requests"
        blocks.append(_outcomes(runs, "simulated", "what_if", "changed", caption))
    return [*blocks, Command(f"punctual-lab replay {summary['path']}")]


def _exactness(runs: dict[str, Any]) -> TableBlock:
    columns = ("run", "decisions", "other calls", "made again differently", "not compared", "lost")
    rows = tuple(
        (
            name,
            str(exact["decisions"]),
            str(exact["calls"]),
            str(len(exact["differences"])),
            str(exact["skipped"]),
            str(exact["dropped"]),
        )
        for name, exact in ((name, one["exact"]) for name, one in runs.items())
    )
    return TableBlock(columns, rows, "Decisions made again from the log")


def _first_difference(exact: dict[str, Any]) -> str:
    first = exact["differences"][0]
    return (
        f"at {first['time']} s {first['subject']} has {first['field']} = {first['logged']!r} in "
        f"the log and {first['replayed']!r} here. Version of the log: {exact['written_by']}."
    )


def _outcomes(
    runs: dict[str, Any], one: str, other: str, different: str, caption: str, *, whole: bool = False
) -> TableBlock:
    words = [
        word
        for word in Outcome
        if word in ALWAYS_SHOWN or any(run[one][word] or run[other][word] for run in runs.values())
    ]
    columns = ("run", *(word.value for word in words), "ended differently")
    last = ("by whole services",) if whole else ()
    rows = tuple(
        (
            name,
            *(f"{run[one][word]} / {run[other][word]}" for word in words),
            _share(run[different], run["requests"]),
            *(_share(run["different_whole"], run["requests"]) for _ in last),
        )
        for name, run in runs.items()
    )
    return TableBlock((*columns, *last), rows, caption)


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.1%})"
