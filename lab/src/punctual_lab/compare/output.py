"""Runs a comparison and writes what it found: rows, summary, report, and the table on the
terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from punctual_lab.compare.report import build_report
from punctual_lab.compare.runner import run_comparison
from punctual_lab.compare.summary import summarise_comparison
from punctual_lab.processes import Stack
from punctual_lab.report.document import write_report
from punctual_lab.tables import build_outcome_table, build_table, build_time_table, format_number

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from punctual_lab.compare.plan import Comparison, ComparisonPlan


def run_and_write(
    plan: ComparisonPlan, folder: Path, console: Console, *, title: str, command: str
) -> dict[str, Any]:
    """Run the plan in a stack of its own, write `folder`, print the tables; return the summary."""
    with Stack(folder / "logs") as stack:
        comparison = run_comparison(plan, folder, stack, console)
    summary = summarise_comparison(comparison)
    write_comparison(comparison, summary, folder, title=title, command=command)
    print_comparison(summary, console, folder)
    return summary


def write_comparison(
    comparison: Comparison, summary: dict[str, Any], folder: Path, *, title: str, command: str
) -> None:
    """Write `summary.json` and `report.html`; the rows were written as each mode ended."""
    write_summary(folder / "summary.json", summary)
    write_report(folder / "report.html", build_report(comparison, summary, title, command))


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write a summary as indented JSON in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_bytes(orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    draft.replace(path)


def print_comparison(summary: dict[str, Any], console: Console, folder: Path) -> None:
    """Print the table of modes, the refusal costs, warnings, and where the files are."""
    title = (
        f"effective load {summary['effective_load']:.2f}, deadline "
        f"{summary['deadline_ms'] / 1e3:g} s, model {summary['model']}, seed {summary['seed']}"
    )
    console.print()
    console.print(build_outcome_table(summary["modes"], title))
    console.print(build_time_table(summary["modes"], "in time, of those offered; and how long"))
    console.print(build_refusal_table(summary["refusal"]))
    for warning in summary["warnings"]:
        console.print(f"[yellow]warning:[/] {warning}")
    console.print(f"report:  {folder / 'report.html'}")
    console.print(f"numbers: {folder / 'summary.json'}; rows in {folder / 'rows'}")


def build_refusal_table(refusal: dict[str, Any]) -> Table:
    """Build the table of refusal times beside the bare handler's."""
    named = [(f"sustained, {name}", row) for name, row in refusal["sustained"].items()]
    burst = refusal["burst_of_30"]
    named += [("30 at once, Predictive", burst)] if burst else []
    rows = [
        [name, *(_pair(row[side]) for side in ("gateway_ms", "bare_ms", "ratio"))]
        for name, row in named
        if row["gateway_ms"]["p50"] is not None
    ]
    if burst and burst["server_ms"]["p50"] is not None:
        rows.append(["  of it inside the gateway", _pair(burst["server_ms"]), "-", "-"])
    columns = ["ms, p50 / p99", "gateway", "bare aiohttp 503", "ratio"]
    return build_table("what a refusal costs, beside a bare handler's", columns, rows)


def _pair(quantiles: dict[str, float | None]) -> str:
    return " / ".join(format_number(quantiles[key]) for key in ("p50", "p99"))
