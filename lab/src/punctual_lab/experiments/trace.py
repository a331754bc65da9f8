"""`punctual-lab trace`: a recorded workload, whose `max_tokens` the gateway does not know.

The file has the columns of the public Azure LLM inference traces: TIMESTAMP, ContextTokens,
GeneratedTokens. Outputs are clipped, and time is scaled so that the work comes to a stated load.
Every request asks for the clipped maximum; how much it really makes is only in the file.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from punctual_admission.policy import Policy, policy_from_spec
from punctual_admission.service_time import ServiceModel
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    options_of,
    run_experiment,
)
from punctual_lab.experiments.optimum import bound_on_time
from punctual_lab.experiments.tally import share_good, tally
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.world import Arrival, PodSpec, World
from punctual_lab.traces import read_recorded_trace

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


RULES = {
    "true lengths": Rule(told="true"),
    "maximum": Rule(),
    "learned 90": Rule(certainty=90),
    "learned 95": Rule(certainty=95),
    "learned 99": Rule(certainty=99),
    "blind 90": Rule(certainty=90, prompts=False),
    "blind 99": Rule(certainty=99, prompts=False),
    "Bounded 8": Rule(mode="Bounded"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the file and the shape of the workload."""
    parser.add_argument("recorded", type=Path, help="CSV (also .gz) with TIMESTAMP, ContextTokens "
                        "and GeneratedTokens")  # fmt: skip
    parser.add_argument("--limit", type=int, default=2500, help="requests used (default 2500)")
    parser.add_argument("--max-tokens", type=int, default=512, help="outputs are clipped to this")
    parser.add_argument("--deadline", type=float, default=10.0, help="seconds (default 10)")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Play the workload under every rule."""
    options = options_of(
        args, recorded=str(args.recorded), limit=args.limit, max_tokens=args.max_tokens,
        deadline=args.deadline,
    )  # fmt: skip
    run_experiment(sys.modules[__name__], options)
    return 0


def measure(options: Options) -> Summary:
    """Counts per pool, load and rule, beside the bound."""
    extra = dict(options.extra)
    if options.quick:
        extra["limit"] = min(extra["limit"], 800)
    tasks = [
        {**extra, "pool": pool, "load": load, "rule": rule}
        for pool in POOLS
        for load in LOADS
        for rule in RULES
    ]
    results = options.run(NAME, play, tasks)
    cells: dict[str, Any] = {}
    for task, result in zip(tasks, results, strict=True):
        cells.setdefault(f"{task['pool']}, load {task['load']:g}", {})[task["rule"]] = result
    return {"cells": cells, **extra}


def play(
    recorded: str, limit: int, max_tokens: int, deadline: float, pool: str, load: float, rule: str
) -> Summary:
    """One rule on one pool at one load."""
    model = pool_model(pool)
    arrivals = build_arrivals(Path(recorded), limit, max_tokens, deadline, model, load)
    shown = [as_seen(arrival, RULES[rule]) for arrival in arrivals]
    records = World(build_policy(RULES[rule], deadline), [PodSpec(model)]).run(shown)
    counts = tally(records)
    del counts["by_tokens"]
    counts["bound"] = bound_on_time(arrivals, model)
    return counts


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
    path: Path, limit: int, max_tokens: int, deadline: float, model: ServiceModel, load: float
) -> list[Arrival]:
    """The recorded requests, their times scaled to `load` times what the pool can do."""
    trace = read_recorded_trace(path, limit=limit, max_output_tokens=max_tokens)
    work = sum(model.cost(0, request.max_tokens) for request in trace)
    span = trace[-1].at_seconds or 1.0
    scale = work / load / span
    return [
        Arrival(
            r.at_seconds * scale, r.prompt_tokens, max_tokens, deadline, output_tokens=r.max_tokens
        )
        for r in trace
    ]


def as_seen(arrival: Arrival, rule: Rule) -> Arrival:
    """The request as the gateway sees it: its length told, or its prompt hidden."""
    if rule.told == "true":
        return replace(arrival, max_tokens=arrival.actual_tokens)
    return arrival if rule.prompts else replace(arrival, prompt_tokens=0)


def describe(summary: Summary) -> list[Block]:
    """Shares on time, and broken promises."""
    rules: Sequence[str] = list(RULES)
    shares, broken = [], []
    for case, cell in summary["cells"].items():
        bound = next(iter(cell.values()))
        shares.append(
            (case, *(f"{share_good(cell[rule]):.1%}" for rule in rules),
             f"{bound['bound'] / bound['total']:.1%}")
        )  # fmt: skip
        broken.append(
            (case, *(f"{_share(cell[rule], 'late')} / {_share(cell[rule], 'expired')}"
                     for rule in rules))
        )  # fmt: skip
    return [
        Text(
            f"`{Path(summary['recorded']).name}`, first {summary['limit']} requests, outputs "
            f"clipped to {summary['max_tokens']} tokens, {STEP_SECONDS * 1e3:g} ms a step alone, "
            f"deadline {summary['deadline']:g} s, late work cut off. The bound knows every length "
            "and the future; for several slots it is above what can be reached."
        ),
        TableBlock(("case", *rules, "bound"), tuple(shares), "Answered in time"),
        TableBlock(("case", *rules), tuple(broken), "Promises broken: late / expired, of all"),
        Command(f"punctual-lab trace {Path(summary['recorded']).name}"),
    ]


def _share(counts: dict[str, Any], word: str) -> str:
    return f"{counts[word] / counts['total']:.1%}"
