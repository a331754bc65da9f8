"""`punctual-lab demo`: the whole thing once, live: who is answered in time, mode by mode."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from punctual_lab.compare.output import run_and_write
from punctual_lab.compare.plan import ComparisonPlan

if TYPE_CHECKING:
    import argparse

NAME = "demo"
HELP = "start model server and gateway, play the reference load in each mode, print who was in time"

FULL = ComparisonPlan()
QUICK = dataclasses.replace(FULL, seconds=6.0, service_repeats=3, probe_repeats=3, burst_rounds=2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the demo's few choices."""
    parser.add_argument("--quick", action="store_true", help="about one minute instead of four")
    parser.add_argument("--seed", type=int, default=FULL.seed, help="seed of the trace (default 1)")
    parser.add_argument("--out", type=Path, default=Path("reports/demo"), help="output folder")


def run(args: argparse.Namespace) -> int:
    """Run the demo and write its report."""
    plan = dataclasses.replace(QUICK if args.quick else FULL, seed=args.seed)
    run_and_write(
        plan,
        args.out,
        Console(),
        title="Punctual demo: who is answered in time under overload",
        command="make demo QUICK=1" if args.quick else "make demo",
    )
    return 0
