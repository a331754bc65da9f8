"""`punctual-lab load`: play a seeded trace against any OpenAI-compatible server and keep its
rows.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from punctual_lab import traces
from punctual_lab.load.client import Target
from punctual_lab.load.generator import run_load
from punctual_lab.load.retry import RETRY_BEHAVIOURS
from punctual_lab.load.rows import write_rows
from punctual_lab.load.summary import summarise
from punctual_lab.progress import track_requests
from punctual_lab.tables import build_outcome_table, build_time_table

if TYPE_CHECKING:
    from punctual_lab.traces import Trace

NAME = "load"
HELP = "play a seeded trace, open loop, against a server; write one row a request"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare target, trace and client behaviour."""
    parser.add_argument(
        "url", help="base URL of a gateway or server, such as http://127.0.0.1:8000"
    )
    parser.add_argument("--model", default="lab", help="model name in requests (default lab)")
    parser.add_argument("--rate", type=float, default=5.0, help="requests per second (default 5)")
    parser.add_argument("--seconds", type=float, default=40.0, help="trace length (default 40)")
    parser.add_argument("--burst", type=int, help="send this many at once instead")
    parser.add_argument("--every", type=float, help="with --burst: repeat it every so many seconds")
    parser.add_argument("--recorded", type=Path, help="play this CSV instead (TIMESTAMP, ...)")
    parser.add_argument("--limit", type=int, help="with --recorded: only the first ones")
    parser.add_argument("--time-scale", type=float, default=1.0, help="with --recorded: stretch")
    parser.add_argument("--prompt-tokens", type=int, default=16, help="prompt length (default 16)")
    parser.add_argument("--deadline-ms", type=int, help="deadline sent with each request")
    parser.add_argument(
        "--tier",
        type=_tier_share,
        action="append",
        default=[],
        metavar="NAME=SHARE",
        help="this share of the requests has this tier (repeatable)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the trace (default 1)")
    parser.add_argument("--stream", action="store_true", help="ask for streamed answers")
    parser.add_argument("--give-up", type=float, help="seconds after which a client leaves")
    parser.add_argument("--retry", choices=sorted(RETRY_BEHAVIOURS), default="none")
    parser.add_argument("--rows", type=Path, default=Path("reports/load/rows.jsonl"))


def run(args: argparse.Namespace) -> int:
    """Play the trace, print the table, write the rows."""
    trace = build_trace(args)
    target = Target(args.url, args.model, stream=args.stream, give_up_seconds=args.give_up)
    console = Console()
    with track_requests(console, args.url, len(trace)) as on_row:
        result = asyncio.run(
            run_load(trace, target, retry=RETRY_BEHAVIOURS[args.retry](), on_row=on_row)
        )
    write_rows(args.rows, result.rows)
    summary = {args.url: summarise(result.rows)}
    console.print(build_outcome_table(summary, "how the requests ended"))
    console.print(build_time_table(summary, "in time, of those offered; and how long"))
    tiers = summary[args.url]["by_tier"]
    if tiers:
        named = {name or "(no tier)": counts for name, counts in tiers.items()}
        console.print(build_outcome_table(named, "how they ended, by tier"))
    for warning in result.warnings:
        console.print(f"[yellow]warning:[/] {warning}")
    console.print(f"rows: {args.rows}")
    return 0


def build_trace(args: argparse.Namespace) -> Trace:
    """Build the trace that the arguments describe. Raises ValueError for shares above 1."""
    return traces.with_tiers(_build_plain_trace(args), dict(args.tier), args.seed)


def _tier_share(text: str) -> tuple[str, float]:
    name, _, share = text.partition("=")
    try:
        return name, float(share)
    except ValueError:
        msg = f"must be NAME=SHARE such as interactive=0.7, got {text!r}"
        raise argparse.ArgumentTypeError(msg) from None


def _build_plain_trace(args: argparse.Namespace) -> Trace:
    if args.recorded is not None:
        return traces.read_recorded_trace(
            args.recorded,
            limit=args.limit,
            time_scale=args.time_scale,
            deadline_ms=args.deadline_ms,
        )
    common = {
        "seed": args.seed,
        "prompt_tokens": args.prompt_tokens,
        "deadline_ms": args.deadline_ms,
    }
    if args.burst is None:
        return traces.build_poisson_trace(
            rate_per_second=args.rate, duration_seconds=args.seconds, **common
        )
    if args.every is None:
        return traces.build_burst_trace(count=args.burst, **common)
    return traces.build_periodic_burst_trace(
        count=args.burst, period_seconds=args.every, duration_seconds=args.seconds, **common
    )
