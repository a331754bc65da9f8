"""`punctual-lab bench`: decisions, refusals and forwarding beside other programs, in one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from punctual_lab.bench.others import STARTERS
from punctual_lab.bench.output import build_bench_report, print_bench
from punctual_lab.bench.runner import BenchPlan, run_bench
from punctual_lab.compare.output import write_summary
from punctual_lab.report.document import write_report

if TYPE_CHECKING:
    import argparse

NAME = "bench"
HELP = "measure decisions, refusals, forwarding, forecast error and memory, beside other proxies"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what is measured and how long."""
    parser.add_argument("--quick", action="store_true", help="a third of the time, rougher numbers")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=sorted(STARTERS),
        help="leave this one out",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of traces (default 1)")
    parser.add_argument("--out", type=Path, default=Path("reports/bench"), help="output folder")


def run(args: argparse.Namespace) -> int:
    """Run the benchmark, print its tables, write its summary."""
    plan = BenchPlan(
        rounds=1 if args.quick else 3,
        seconds=1.0 if args.quick else 1.5,
        bursts=10 if args.quick else 20,
        forecast_seconds=8.0 if args.quick else 20.0,
        decision_rounds=100 if args.quick else 400,
        programs=tuple(name for name in STARTERS if name not in args.without),
        seed=args.seed,
    )
    console = Console()
    summary = run_bench(plan, args.out, console)
    write_summary(args.out / "summary.json", summary)
    print_bench(summary, console)
    command = "make bench ARGS=--quick" if args.quick else "make bench"
    report = write_report(args.out / "report.html", build_bench_report(summary, command))
    console.print(f"report:  {report}")
    console.print(f"numbers: {args.out / 'summary.json'}")
    return 0
