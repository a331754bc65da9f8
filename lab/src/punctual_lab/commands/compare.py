"""`punctual-lab compare`: the modes on one seeded trace against live servers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from punctual_lab.compare.output import run_and_write
from punctual_lab.compare.plan import ComparisonPlan
from punctual_lab.policies import ALL_MODES

if TYPE_CHECKING:
    import argparse

NAME = "compare"
HELP = "run the modes on the same seeded trace against live servers; table, rows and report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the plan's fields."""
    plan = ComparisonPlan()
    parser.add_argument("--load", type=float, default=plan.load, help="target load (default 2)")
    parser.add_argument("--seconds", type=float, default=plan.seconds, help="trace length (40)")
    parser.add_argument("--deadline-ms", type=int, default=plan.deadline_ms, help="default 2000")
    parser.add_argument("--seed", type=int, default=plan.seed, help="seed of the trace (1)")
    parser.add_argument("--queue-limit", type=int, default=plan.queue_limit, help="Bounded's N (8)")
    parser.add_argument("--prompt-tokens", type=int, default=plan.prompt_tokens, help="default 16")
    parser.add_argument("--model", default=plan.model, help="for the model server (random:lab)")
    parser.add_argument("--slots", type=int, default=plan.slots, help="of the model server (1)")
    parser.add_argument("--stream", action="store_true", help="clients ask for streamed answers")
    parser.add_argument(
        "--server-argument",
        action="append",
        default=[],
        metavar="ARG",
        help="for the model server, may be repeated: --server-argument=--engine=sim",
    )
    parser.add_argument(
        "--mode",
        action="append",
        choices=[mode.slug for mode in ALL_MODES],
        help="run only this mode, may be repeated",
    )
    parser.add_argument("--out", type=Path, default=Path("reports/compare"), help="output folder")


def run(args: argparse.Namespace) -> int:
    """Run the comparison. Returns 0 when every mode has run."""
    run_and_write(
        build_plan(args),
        args.out,
        Console(),
        title="Punctual: the modes compared",
        command=f"punctual-lab {' '.join(sys.argv[1:])}",
    )
    return 0


def build_plan(args: argparse.Namespace) -> ComparisonPlan:
    """Build the plan that the arguments describe."""
    modes = tuple(mode for mode in ALL_MODES if not args.mode or mode.slug in args.mode)
    return ComparisonPlan(
        load=args.load,
        seconds=args.seconds,
        deadline_ms=args.deadline_ms,
        seed=args.seed,
        modes=modes,
        prompt_tokens=args.prompt_tokens,
        queue_limit=args.queue_limit,
        model=args.model,
        slots=args.slots,
        stream=args.stream,
        server_arguments=tuple(args.server_argument),
    )
