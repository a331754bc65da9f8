"""What the benchmark found: tables on the terminal, and a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from punctual_lab.bench.forward import BARE, DIRECT
from punctual_lab.bench.tables import (
    decision_table,
    forecast_table,
    forwarding_table,
    memory_table,
    refusal_table,
)
from punctual_lab.report.document import Block, Command, Figure, Note, Plot, Report, Section, Text
from punctual_lab.report.plots import SERIES_COLOURS, add_axes, build_svg, new_figure
from punctual_lab.tables import build_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import matplotlib.figure
    from rich.console import Console

    from punctual_lab.report.document import TableBlock

OURS = "punctual"


def print_bench(summary: Mapping[str, Any], console: Console) -> None:
    """Print every part's table and what was missing."""
    console.print()
    for block in all_tables(summary):
        console.print(build_table(block.caption, block.columns, block.rows))
    for name, why in summary["missing"].items():
        console.print(f"[yellow]not measured:[/] {name}: {why}")


def all_tables(summary: Mapping[str, Any]) -> list[TableBlock]:
    """Return the tables of all parts in reading order."""
    return [
        decision_table(summary["decision"]),
        refusal_table(summary["refusal"]),
        *(forwarding_table(count, rows) for count, rows in summary["forwarding"].items()),
        forecast_table(summary["forecast_error"]),
        memory_table(summary["memory_mib"]),
    ]


def build_bench_report(summary: Mapping[str, Any], command: str) -> Report:
    """Build the benchmark's report."""
    decision, refusal, *forwarding, forecast, memory = all_tables(summary)
    missing = tuple(Note(f"{name}: {why}") for name, why in summary["missing"].items())
    sections = (
        Section("One decision", (Text(DECISION_TEXT), decision)),
        Section("A refusal", (Text(REFUSAL_TEXT), refusal)),
        Section(
            "A forwarded request", (Text(FORWARD_TEXT), _picture(summary), *forwarding, *missing)
        ),
        Section("The forecast", (Text(FORECAST_TEXT), forecast)),
        Section("Memory", (memory,)),
        Section("Where and how", (*_machine_blocks(summary), Command(command))),
    )
    lead = "What the gateway costs, beside the least that it could cost and beside other programs."
    return Report("Punctual: what it costs", lead, _figures(summary), sections)


DECISION_TEXT = (
    "One call of the admission core on two pods of four slots, all busy, with so many requests in "
    "the queue. `admit` and `refuse` come right after something changed, as while tokens arrive, "
    "so each computes the forecast anew; the last column is a second refusal at the same moment."
)
REFUSAL_TEXT = (
    "The gateway refuses while its one slot is busy, ten requests wait and tokens arrive; the bare "
    "handler reads the request and answers a constant 503. Sustained: one every 10 ms. The rate is "
    "what 32 connections get out of it, per second of CPU time that the process used."
)
FORWARD_TEXT = (
    "Every program runs one worker in front of the same upstream, which answers at once. The "
    "client sends prebuilt bytes, so what is seen is the program. They are measured in turns."
)
FORECAST_TEXT = (
    "A live GPT-2 behind the gateway at 1.5 times its capacity: the time predicted at arrival "
    "against the time measured by the client. A positive bias means later than predicted."
)


def draw_forwarding(forwarding: Mapping[str, Any]) -> matplotlib.figure.Figure:
    """Draw the median time of each program, one panel for each number of connections, log scale."""
    figure = new_figure(9.2, 2.6)
    axes = add_axes(figure, columns=len(forwarding), sharey=True)
    for axis, (connections, rows) in zip(axes, forwarding.items(), strict=True):
        names = list(rows)
        colours = [SERIES_COLOURS[1] if name == OURS else SERIES_COLOURS[0] for name in names]
        times = [rows[name]["p50_ms"] for name in names]
        bars = axis.barh(names, times, color=colours, height=0.6)
        axis.bar_label(bars, [f"{time:g}" for time in times], padding=3, fontsize=8)
        axis.set_xscale("log")
        axis.set_xlim(min(times) / 2, max(times) * 5)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_xlabel(f"median ms, {connections} connection(s)")
        axis.grid(visible=False, axis="y")
    axes[0].invert_yaxis()
    return figure


def _picture(summary: Mapping[str, Any]) -> Block:
    caption = "Median time of a request through each program, on a logarithmic scale."
    return Plot(build_svg(draw_forwarding(summary["forwarding"]), "forwarding"), caption, caption)


def _figures(summary: Mapping[str, Any]) -> tuple[Figure, ...]:
    alone = summary["forwarding"].get("1", {})
    figures = [
        Figure(
            f"{summary['refusal']['sustained']['gateway_ms']['p50']:.2f} ms",
            "a refusal, median",
            f"bare handler {summary['refusal']['sustained']['bare_ms']['p50']:.2f} ms",
        ),
        Figure(
            f"{summary['decision']['100']['refuse']['p50_us']:.0f} us",
            "a decision with 100 queued, median",
            f"p99 {summary['decision']['100']['refuse']['p99_us']:.0f} us",
        ),
    ]
    if OURS in alone:
        bare = f"bare proxy {alone[BARE]['added_ms']['p50']:.2f} ms, " if BARE in alone else ""
        figures.append(
            Figure(
                f"{alone[OURS]['added_ms']['p50']:.2f} ms",
                "added to a request, median",
                f"{bare}direct {alone[DIRECT]['p50_ms']:.2f} ms",
            )
        )
    return tuple(figures)


def _machine_blocks(summary: Mapping[str, Any]) -> tuple[Block, ...]:
    machine = summary["machine"]
    text = (
        f"{machine['cpus']} CPUs ({machine['machine']}), Python {machine['python']}, load average "
        f"{machine['load_average']} at the end. All programs and the client share the CPUs. To run "
        "it again:"
    )
    return (Text(text),)
