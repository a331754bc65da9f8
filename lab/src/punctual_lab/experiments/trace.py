"""`punctual-lab trace`: a recorded workload, whose `max_tokens` the gateway does not know.

The file has the columns of the public Azure LLM inference traces: TIMESTAMP, ContextTokens,
GeneratedTokens. Outputs are clipped, and time is scaled so that the work comes to a stated load.
Every request asks for the clipped maximum; how much it really makes is only in the file.

`Blind` rules know nothing that tells one request from another: lengths are learned without their
prompts, and each request counts as the same quantile. The best of several quantiles, case by case
and chosen afterwards, is what knowing nothing of a request is worth; that it keeps its promises is
not asked.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from punctual_admission.outcomes import Outcome
from punctual_admission.policy import Policy, policy_from_spec
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Request
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    options_of,
    run_experiment,
)
from punctual_lab.experiments.optimum import bound_on_time
from punctual_lab.experiments.tally import share_good, tally
from punctual_lab.report.document import Block, Command, Note, TableBlock, Text
from punctual_lab.simulate.world import Arrival, PodSpec, World
from punctual_lab.traces import Trace, read_recorded_trace

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

NAME = "trace"
TITLE = "A recorded workload of conversations"
HELP = "play a recorded workload at a load, lengths known, unknown and learned"
STEP_SECONDS = 0.0085
POOLS = {"1 slot": (1, 0.0), "4 slots": (4, 0.10), "16 slots": (16, 0.02)}
"""Slots, and what each neighbour adds to a step."""
LOADS = (1.0, 2.0)


CERTAINTIES = (90, 95, 99)
PROMISED = 0.005
"""Late or expired, of those admitted: no more than this is to be broken."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What the gateway knows of lengths, and how it decides."""

    mode: str = "Predictive"
    told: str = "maximum"
    """`true`: each length is known; `maximum`: the clipped maximum for all."""
    certainty: int | None = None
    """Percent with which a learned length must fit; None: nothing is learned."""
    prompts: bool = True
    """Whether lengths are told apart by their prompts."""
    taught: bool = False
    """Whether all lengths have been learned before the first request comes."""


BLIND = {f"blind {one}": Rule(certainty=one, prompts=False) for one in (50, 75, 90, 99)}
RULES = {
    "true lengths": Rule(told="true"),
    "maximum": Rule(),
    **{f"learned {one}": Rule(certainty=one) for one in CERTAINTIES},
    "learned 95, taught before": Rule(certainty=95, taught=True),
    "Bounded 8": Rule(mode="Bounded"),
    **BLIND,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the file and the shape of the workload."""
    parser.add_argument("recorded", type=Path, help="CSV (also .gz) with TIMESTAMP, ContextTokens "
                        "and GeneratedTokens")  # fmt: skip
    parser.add_argument("--limit", type=int, default=2500, help="requests used (default 2500)")
    parser.add_argument("--parts", type=int, default=1, help="so many consecutive parts of that "
                        "length, each from a cold start (default 1)")  # fmt: skip
    parser.add_argument("--max-tokens", type=int, default=512, help="outputs are clipped to this")
    parser.add_argument("--deadline", type=float, default=10.0, help="seconds (default 10)")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Play the workload under every rule. Raises ValueError for a number of parts below 1."""
    if args.parts < 1:
        raise ValueError(f"--parts must be at least 1, got {args.parts}")
    options = options_of(
        args, recorded=str(args.recorded), limit=args.limit, parts=args.parts,
        max_tokens=args.max_tokens, deadline=args.deadline,
    )  # fmt: skip
    run_experiment(sys.modules[__name__], options)
    return 0


def measure(options: Options) -> Summary:
    """Counts per pool, load and rule, beside the bound."""
    extra = dict(options.extra)
    if options.quick:
        extra["limit"], extra["parts"] = min(extra["limit"], 800), 1
    parts = extra.pop("parts")
    tasks = [
        {**extra, "pool": pool, "load": load, "rule": rule, "part": part}
        for pool in POOLS
        for load in LOADS
        for rule in RULES
        for part in range(parts)
    ]
    results = options.run(NAME, play, tasks)
    cells: dict[str, dict[str, Any]] = {}
    for task, result in zip(tasks, results, strict=True):
        cell = cells.setdefault(f"{task['pool']}, load {task['load']:g}", {})
        counts = cell.setdefault(task["rule"], dict.fromkeys(result, 0) | {"worst": 0.0})
        for name, value in result.items():
            counts[name] += value
        counts["worst"] = max(counts["worst"], share_broken(result))
    for cell in cells.values():
        cell["best blind"] = max((cell[name] for name in BLIND if name in cell), key=share_good)
    return {"cells": cells, "parts": parts, **extra}


def play(
    recorded: str, limit: int, max_tokens: int, deadline: float, pool: str, load: float, rule: str,
    part: int,
) -> Summary:  # fmt: skip
    """One rule on one pool at one load."""
    model, how = pool_model(pool), RULES[rule]
    trace = read_part(Path(recorded), limit, max_tokens, part)
    arrivals = build_arrivals(trace, max_tokens, deadline, model, load)
    world = World(build_policy(how, deadline), [PodSpec(model)])
    if how.taught:
        teach(world, arrivals)
    records = world.run([as_seen(arrival, how) for arrival in arrivals])
    counts = tally(records)
    del counts["by_tokens"]
    scouts = [one for one in records if one.ticket is not None and one.ticket.scouts]
    counts["scouts"] = len(scouts)
    counts["scouts_late"] = sum(one.outcome is Outcome.LATE for one in scouts)
    counts["bound"] = bound_on_time(arrivals, model)
    return counts


def read_part(path: Path, limit: int, max_tokens: int, part: int) -> Trace:
    """The requests of one part; raises ValueError when the file is too short for it."""
    whole = read_recorded_trace(path, limit=limit * (part + 1), max_output_tokens=max_tokens)
    trace = whole[limit * part :]
    if not trace:
        raise ValueError(f"{path} has {len(whole)} requests, --parts must be at most {part}")
    return trace


def teach(world: World, arrivals: Sequence[Arrival]) -> None:
    """Let the gateway learn every length before it is asked."""
    for number, one in enumerate(arrivals):
        request = Request(f"t{number}", one.prompt_tokens, one.max_tokens, 0.0, one.budget)
        world.ledger.lengths.observe(request, one.actual_tokens)


def pool_model(pool: str) -> ServiceModel:
    """A pod whose step grows by a share with each neighbour; a prefill takes one step."""
    slots, growth = POOLS[pool]
    steps = tuple(STEP_SECONDS * (1 + growth * extra) for extra in range(slots))
    return ServiceModel(steps, prefill_base=STEP_SECONDS)


def build_policy(rule: Rule, deadline: float) -> Policy:
    """The policy of a rule; late work is cut off."""
    estimate: dict[str, Any] = {}
    if rule.certainty is not None:
        estimate = {"outputLength": "Learned", "lengthCertaintyPercent": rule.certainty}
    return policy_from_spec(
        {
            "model": "m",
            "mode": rule.mode,
            "overdue": "Cancel",
            "deadline": {"defaultMilliseconds": round(deadline * 1000)},
            "estimate": estimate,
        }
    )


def build_arrivals(
    trace: Trace, max_tokens: int, deadline: float, model: ServiceModel, load: float
) -> list[Arrival]:
    """The recorded requests, their times scaled to `load` times what the pool can do."""
    begin = trace[0].at_seconds
    work = sum(model.cost(0, request.max_tokens) for request in trace)
    span = trace[-1].at_seconds - begin or 1.0
    scale = work / load / span
    return [
        Arrival(
            (r.at_seconds - begin) * scale, r.prompt_tokens, max_tokens, deadline,
            output_tokens=r.max_tokens,
        )
        for r in trace
    ]  # fmt: skip


def as_seen(arrival: Arrival, rule: Rule) -> Arrival:
    """The request as the gateway sees it: its length told, or its prompt hidden."""
    if rule.told == "true":
        return replace(arrival, max_tokens=arrival.actual_tokens)
    return arrival if rule.prompts else replace(arrival, prompt_tokens=0)


def share_broken(counts: dict[str, Any]) -> float:
    """Late or expired, of those admitted with a promise: scouts have none."""
    broken = counts["late"] + counts["expired"] - counts["scouts_late"]
    kept = counts["good"] - (counts["scouts"] - counts["scouts_late"])
    return float(broken / max(1, broken + kept))


def describe(summary: Summary) -> list[Block]:
    """Shares on time, and broken promises."""
    shown = [name for name in RULES if name not in BLIND] + ["best blind"]
    rows, blind = [], []
    for case, cell in summary["cells"].items():
        rows += [(case, rule, *_numbers(cell, rule)) for rule in shown]
        blind.append((case, *(f"{share_good(cell[rule]):.1%} / {share_broken(cell[rule]):.1%}"
                              for rule in BLIND)))  # fmt: skip
    played = f"the first {summary['limit']} requests"
    if summary["parts"] > 1:
        played = f"{summary['parts']} parts of {summary['limit']} requests"
    return [
        Text(
            f"`{Path(summary['recorded']).name}`, {played}, outputs clipped to "
            f"{summary['max_tokens']} tokens, {STEP_SECONDS * 1e3:g} ms a step alone, deadline "
            f"{summary['deadline']:g} s, late work cut off. The bound knows every length and the "
            "future; for several slots it is above what can be reached. The best blind rule is "
            "chosen afterwards for each case, and need not keep its promises."
        ),
        TableBlock(
            ("case", "lengths", "in time", "of true lengths", "of best blind", "of the bound",
             "broken", "worst part", "late scouts"),
            tuple(rows),
            "Answered in time; broken: late or expired, of those admitted with a promise; late "
            "scouts: of all",
        ),
        Note(_verdict(summary["cells"])),
        TableBlock(
            ("case", *BLIND), tuple(blind),
            "Rules that are blind to length: in time of all / broken of admitted",
        ),
        Command(f"punctual-lab trace {Path(summary['recorded']).name}"),
    ]  # fmt: skip


def _numbers(cell: dict[str, Any], rule: str) -> tuple[str, ...]:
    counts = cell[rule]
    good = share_good(counts)
    known, blind = share_good(cell["true lengths"]), share_good(cell["best blind"])
    return (
        f"{good:.1%}", _ratio(good, known), _ratio(good, blind),
        _ratio(counts["good"], counts["bound"]), f"{share_broken(counts):.2%}",
        f"{counts['worst']:.2%}", f"{counts['scouts_late'] / max(1, counts['total']):.2%}",
    )  # fmt: skip


def _ratio(value: float, base: float) -> str:
    return f"{value / base:.1%}" if base else "-"


def _verdict(cells: dict[str, Any]) -> str:
    """What learned lengths are worth in the worst case of each certainty."""
    said = []
    for certainty in CERTAINTIES:
        rule = f"learned {certainty}"
        found = [(cell[rule], cell["true lengths"], cell["best blind"]) for cell in cells.values()]
        blind = min(share_good(own) / max(share_good(best), 1e-9) for own, _, best in found)
        known = min(share_good(own) / max(share_good(true), 1e-9) for own, true, _ in found)
        broken = max(share_broken(own) for own, _, _ in found)
        kept = "kept" if broken <= PROMISED else "not kept"
        said.append(
            f"{certainty} %: at least {known:.1%} of what true lengths give and {blind:.1%} of the "
            f"best blind rule, at most {broken:.2%} broken ({PROMISED:.1%} {kept})"
        )
    return "Learned lengths, worst case of each certainty. " + "; ".join(said) + "."
