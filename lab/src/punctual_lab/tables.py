"""Tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from punctual_admission.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

COUNT_STYLES = {Outcome.GOOD: "green", Outcome.LATE: "red", Outcome.FAILED: "red"}


def build_mode_table(modes: Mapping[str, Mapping[str, Any]], title: str | None = None) -> Table:
    """Build one row a mode: six outcomes, latencies, share of each size class on time."""
    table = Table(title=title, title_justify="left")
    table.add_column("mode")
    for outcome in Outcome:
        table.add_column(outcome.value, justify="right", style=COUNT_STYLES.get(outcome))
    sizes = sorted({size for row in modes.values() for size in row["by_tokens"]}, key=int)
    columns = ("total", "on time", "answer p50/p99 s", "refusal p50/p99 ms")
    for name in (*columns, *(f"{size} tok on time" for size in sizes)):
        table.add_column(name, justify="right")
    for name, row in modes.items():
        table.add_row(name, *_cells(row, sizes))
    return table


def build_table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    """Build a plain table: the first column to the left, numbers to the right."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    return table


def format_number(value: float | None, digits: int = 2) -> str:
    """Return the number with fixed decimals, a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def format_share(part: int, whole: int) -> str:
    """Return a percentage, a dash where there is no whole."""
    return "-" if whole == 0 else f"{part / whole:.0%}"


def _cells(row: Mapping[str, Any], sizes: list[str]) -> list[str]:
    counts = [str(row[outcome.value]) for outcome in Outcome]
    answer, refusal = row["latency_ms"], row["refusal_ms"]
    seconds = [None if answer[key] is None else answer[key] / 1e3 for key in ("p50", "p99")]
    classes = [row["by_tokens"].get(size, {"good": 0, "offered": 0}) for size in sizes]
    return [
        *counts,
        str(row["total"]),
        format_share(row["good"], row["total"]),
        " / ".join(format_number(value) for value in seconds),
        " / ".join(format_number(refusal[key]) for key in ("p50", "p99")),
        *(format_share(size["good"], size["offered"]) for size in classes),
    ]
