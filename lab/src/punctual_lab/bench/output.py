"""The benchmark's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from punctual_lab.tables import build_table, format_number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_bench(summary: dict[str, Any], console: Console) -> None:
    """Print every part's table and what was missing."""
    console.print()
    console.print(build_decision_table(summary["decision"]))
    console.print(build_refusal_table(summary["refusal"]))
    for connections, results in summary["forwarding"].items():
        console.print(build_forwarding_table(connections, results))
    for name, why in summary["missing"].items():
        console.print(f"[yellow]not measured:[/] {name}: {why}")
    console.print(build_forecast_table(summary["forecast_error"]))
    rows = [[name, format_number(value, 1)] for name, value in summary["memory_mib"].items()]
    console.print(build_table("resident memory, MiB", ["program", "MiB"], rows))


def build_decision_table(decision: dict[str, Any]) -> Table:
    """Build the table of decision costs."""
    kinds = ("admit", "refuse", "refuse_unchanged")
    rows = [
        [queued, *(_pair(costs[kind], "p50_us", "p99_us", 0) for kind in kinds)]
        for queued, costs in decision.items()
    ]
    columns = ["queued", "admit", "refuse", "refuse, nothing changed"]
    return build_table("one decision, microseconds p50 / p99", columns, rows)


def build_refusal_table(refusal: dict[str, Any]) -> Table:
    """Build the table of refusal costs beside the bare handler's."""
    named = (("sustained, ms p50 / p99", "sustained"), ("30 at once, ms p50 / p99", "burst_of_30"))
    rows = [
        [label, *(_pair(refusal[key][side]) for side in ("gateway_ms", "bare_ms", "ratio"))]
        for label, key in named
    ]
    rate = refusal["rate"]
    rates = [format_number(rate[name]["per_cpu_second"], 0) for name in ("gateway", "bare")]
    rows.append(["refusals per CPU second", *rates, format_number(rate["share_of_bare"])])
    return build_table("refusals", ["", "gateway", "bare aiohttp 503", "ratio"], rows)


def build_forwarding_table(connections: str, results: dict[str, Any]) -> Table:
    """Build the table of forwarding costs at one number of connections."""
    rows = [
        [
            name,
            *_both(row, "p50_ms", "p99_ms"),
            *_both(row["added_ms"]),
            *_both(row["of_bare_proxy"] or {}),
            format_number(row["requests_per_second"], 0),
            format_number(row["cpu_us_per_request"], 0),
        ]
        for name, row in results.items()
    ]
    columns = ["ms", "p50", "p99", "+p50", "+p99", "x p50", "x p99", "req/s", "CPU us"]
    title = (
        f"forwarding, {connections} connection(s): time, time added (+), multiple of what the "
        "bare proxy adds (x)"
    )
    return build_table(title, columns, rows)


def build_forecast_table(forecast: dict[str, Any]) -> Table:
    """Build the table of forecast errors."""
    rows = [
        [
            slots,
            str(row["answered"]),
            *("-" if row[key] is None else f"{row[key]:.1%}" for key in ("median", "p90", "bias")),
            format_number(row["median_ms"], 0),
        ]
        for slots, row in forecast.items()
    ]
    columns = ["slots", "answered", "median error", "p90", "bias", "median ms"]
    return build_table("predicted against measured time to the end of the answer", columns, rows)


def _pair(values: dict[str, Any], first: str = "p50", second: str = "p99", digits: int = 2) -> str:
    return " / ".join(_both(values, first, second, digits))


def _both(
    values: dict[str, Any], first: str = "p50", second: str = "p99", digits: int = 2
) -> list[str]:
    return [format_number(values.get(key), digits) for key in (first, second)]
