"""`punctual-lab calibrate`: measure a server's service model from outside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from punctual_lab.aio import run_async
from punctual_lab.compare.output import write_summary
from punctual_lab.load.calibration import Calibration, calibrate, count_steps, summarise_errors
from punctual_lab.load.capacity import fetch_capacity
from punctual_lab.load.client import Target
from punctual_lab.progress import build_progress
from punctual_lab.tables import build_table

if TYPE_CHECKING:
    import argparse

NAME = "calibrate"
HELP = "measure a server's prefill line and step times T(B) from outside; print fit and error"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the server and the effort."""
    parser.add_argument("url", help="base URL of an idle model server")
    parser.add_argument("--model", default="lab", help="model name in requests (default lab)")
    parser.add_argument(
        "--batch", type=int, nargs="+", help="batch sizes (default: 1 to its slots)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="of each measurement (default 5)")
    parser.add_argument("--requests", type=int, default=24, help="for the linearity check (24)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the lengths (default 1)")
    parser.add_argument("--json", type=Path, help="also write the numbers here")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    console = Console()
    published = fetch_capacity(args.url)
    sizes = args.batch or list(range(1, int(published.get("slots", 1)) + 1))
    with build_progress(console) as progress:
        task = progress.add_task("measuring", total=count_steps(sizes, args.repeats, args.requests))
        found = run_async(
            calibrate(
                Target(args.url, args.model, stream=True),
                batch_sizes=sizes,
                repeats=args.repeats,
                requests=args.requests,
                seed=args.seed,
                on_step=lambda: progress.advance(task),
            )
        )
    console.print(build_table("service model, ms", COLUMNS, build_rows(found, published)))
    for text in describe_errors(found):
        console.print(text)
    if args.json:
        write_summary(args.json, build_json(found))
    return 0


def describe_errors(found: Calibration) -> list[str]:
    """Say how far the model and a plain line over the answer length are from mixed requests."""
    line = f"{found.line.base * 1e3:.2f} ms + {found.line.slope * 1e3:.3f} ms a token"
    named = {
        "prefill(P) + (n - 1) T(1)": found.model_errors,
        f"line {line}": found.line_errors,
    }
    return [
        f"{name}: error median {e['median']:.1%}, p90 {e['p90']:.1%}, worst {e['worst']:.1%}"
        for name, e in ((name, summarise_errors(errors)) for name, errors in named.items())
    ]


COLUMNS = ("quantity", "measured", "published by the server", "difference")


def build_rows(found: Calibration, published: dict[str, Any]) -> list[list[str]]:
    """Build the table's rows: measured, and what /v1/capacity says where the server has it."""
    prefill = published.get("prefill_seconds", {})
    steps = published.get("step_seconds", [])
    rows = [
        _row("prefill, base", found.prefill.base, prefill.get("base")),
        _row("prefill, per prompt token", found.prefill.slope, prefill.get("per_token")),
    ]
    for size, seconds in found.step_seconds.items():
        told = steps[size - 1] if size <= len(steps) else None
        rows.append(_row(f"step T({size})", seconds, told))
    return rows


def build_json(found: Calibration) -> dict[str, Any]:
    """Build the numbers for a file; times in seconds."""
    return {
        "prefill_seconds": {"base": found.prefill.base, "per_token": found.prefill.slope},
        "step_seconds": {str(size): seconds for size, seconds in found.step_seconds.items()},
        "line_seconds": {"base": found.line.base, "per_token": found.line.slope},
        "model_relative_error": summarise_errors(found.model_errors),
        "line_relative_error": summarise_errors(found.line_errors),
    }


def _row(name: str, measured: float, told: float | None) -> list[str]:
    if told is None:
        return [name, f"{measured * 1e3:.3f}", "-", "-"]
    difference = f"{measured / told - 1:+.1%}" if told else "-"
    return [name, f"{measured * 1e3:.3f}", f"{told * 1e3:.3f}", difference]
