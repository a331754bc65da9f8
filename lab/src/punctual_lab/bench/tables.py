"""The benchmark's numbers as tables, for the terminal and for the report alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from punctual_lab.report.document import TableBlock
from punctual_lab.tables import format_number

if TYPE_CHECKING:
    from collections.abc import Mapping

DECISION_KINDS = ("admit", "refuse", "refuse_unchanged")


def decision_table(decision: Mapping[str, Any]) -> TableBlock:
    """Build the table of decision costs by queue length."""
    rows = [
        (queued, *(_pair(costs[kind], "p50_us", "p99_us", 0) for kind in DECISION_KINDS))
        for queued, costs in decision.items()
    ]
    columns = ("queued", "admit", "refuse", "refuse, nothing changed")
    return TableBlock(columns, tuple(rows), "One decision, microseconds of CPU time, p50 / p99.")


def refusal_table(refusal: Mapping[str, Any]) -> TableBlock:
    """Build the table of refusal costs beside the bare handler's."""
    named = (("sustained, ms", "sustained"), ("30 at once, ms", "burst_of_30"))
    rows = [
        (label, *(_pair(refusal[key][side]) for side in ("gateway_ms", "bare_ms", "ratio")))
        for label, key in named
    ]
    rate = refusal["rate"]
    rates = [format_number(rate[name]["per_cpu_second"], 0) for name in ("gateway", "bare")]
    rows.append(("per CPU second", *rates, format_number(rate["share_of_bare"])))
    columns = ("p50 / p99", "gateway", "bare aiohttp 503", "ratio")
    return TableBlock(columns, tuple(rows), "Refusals beside a bare handler's constant 503.")


def forwarding_table(connections: str, results: Mapping[str, Any]) -> TableBlock:
    """Build the table of forwarding costs at one number of connections."""
    rows = [
        (
            name,
            *_both(row, "p50_ms", "p99_ms"),
            *_both(row["added_ms"]),
            *_both(row["of_bare_proxy"] or {}),
            format_number(row["requests_per_second"], 0),
            format_number(row["cpu_us_per_request"], 0),
        )
        for name, row in results.items()
    ]
    columns = ("ms", "p50", "p99", "+p50", "+p99", "x p50", "x p99", "req/s", "CPU us")
    caption = (
        f"Forwarding, {connections} connection(s): time, time added (+), multiple of what the "
        "bare proxy adds (x)."
    )
    return TableBlock(columns, tuple(rows), caption)


def forecast_table(forecast: Mapping[str, Any]) -> TableBlock:
    """Build the table of forecast errors."""
    rows = [
        (
            slots,
            str(row["answered"]),
            *("-" if row[key] is None else f"{row[key]:.1%}" for key in ("median", "p90", "bias")),
            format_number(row["median_ms"], 0),
        )
        for slots, row in forecast.items()
    ]
    columns = ("slots", "answered", "median error", "p90", "bias", "median ms")
    caption = "Predicted against measured time to the end of the answer."
    return TableBlock(columns, tuple(rows), caption)


def memory_table(memory: Mapping[str, float]) -> TableBlock:
    """Build the table of resident memory."""
    rows = tuple((name, format_number(value, 1)) for name, value in memory.items())
    return TableBlock(("program", "MiB"), rows, "Resident memory after the measurement.")


def _pair(
    values: Mapping[str, Any], first: str = "p50", second: str = "p99", digits: int = 2
) -> str:
    return " / ".join(_both(values, first, second, digits))


def _both(
    values: Mapping[str, Any], first: str = "p50", second: str = "p99", digits: int = 2
) -> list[str]:
    return [format_number(values.get(key), digits) for key in (first, second)]
