"""Tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from punctual_admission.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIRST_COLUMN_WIDTH = 22
COUNT_STYLES = {Outcome.GOOD: "green", Outcome.LATE: "red", Outcome.FAILED: "red"}


def build_outcome_table(modes: Mapping[str, Mapping[str, Any]], title: str) -> Table:
    """Build one row a mode: all six outcomes and their total. Fits 80 columns."""
    table = _new_table(title, "mode")
    for outcome in Outcome:
        table.add_column(
            outcome.value, justify="right", no_wrap=True, style=COUNT_STYLES.get(outcome)
        )
    table.add_column("total", justify="right")
    for name, row in modes.items():
        counts = [str(row[outcome.value]) for outcome in Outcome]
        table.add_row(name, *counts, str(row["total"]))
    return table


def build_time_table(modes: Mapping[str, Mapping[str, Any]], title: str) -> Table:
    """Build one row a mode: shares in time (all, each size class), answer and refusal times."""
    sizes = sorted({size for row in modes.values() for size in row["by_tokens"]}, key=int)
    table = _new_table(title, "mode")
    shares = ("in\ntime", *(f"{size}\ntokens" for size in sizes))
    times = ("answer\np50 s", "answer\np99 s", "refusal\np50 ms", "refusal\np99 ms")
    for column in (*shares, *times):
        table.add_column(column, justify="right", no_wrap=True)
    for name, row in modes.items():
        table.add_row(name, *_time_cells(row, sizes))
    return table


def build_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Build a plain table: the first column to the left, numbers to the right."""
    table = _new_table(title, columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def format_number(value: float | None, digits: int = 2) -> str:
    """Return the number with fixed decimals, a dash for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def format_share(part: int, whole: int) -> str:
    """Return a percentage, a dash where there is no whole."""
    return "-" if whole == 0 else f"{part / whole:.0%}"


def _new_table(title: str, first: str) -> Table:
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column(first, max_width=FIRST_COLUMN_WIDTH)
    return table


def _time_cells(row: Mapping[str, Any], sizes: list[str]) -> list[str]:
    answer, refusal = row["latency_ms"], row["refusal_ms"]
    seconds = [None if answer[key] is None else answer[key] / 1e3 for key in ("p50", "p99")]
    classes = [row["by_tokens"].get(size, {"good": 0, "offered": 0}) for size in sizes]
    return [
        format_share(row["good"], row["total"]),
        *(format_share(size["good"], size["offered"]) for size in classes),
        *(format_number(value) for value in seconds),
        *(format_number(refusal[key]) for key in ("p50", "p99")),
    ]
