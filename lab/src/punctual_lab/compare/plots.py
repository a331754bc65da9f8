"""The pictures of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from punctual_admission.outcomes import Outcome
from punctual_lab.load.summary import count_outcomes, is_answered
from punctual_lab.report.plots import (
    OUTCOME_COLOURS,
    SERIES_COLOURS,
    add_axes,
    draw_cumulative,
    draw_grouped_bars,
    draw_outcomes,
    new_figure,
    set_title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from punctual_lab.compare.plan import Comparison, ModeRun
    from punctual_lab.load.rows import RequestRow


def draw_mode_outcomes(comparison: Comparison) -> Figure:
    """Draw one stacked bar of outcomes a mode."""
    return draw_outcomes({run.mode.name: count_outcomes(run.rows) for run in comparison.runs})


def draw_latency_over_time(comparison: Comparison) -> Figure:
    """Draw each request's time to its answer over its sending time, one panel a mode, log scale."""
    runs = comparison.runs
    figure = new_figure(9.2, 1.7 * len(runs) + 0.6)
    axes = add_axes(figure, rows=len(runs), sharex=True, sharey=True)
    for axis, run in zip(axes, runs, strict=True):
        for outcome in Outcome:
            rows = [row for row in run.rows if row.outcome is outcome]
            axis.scatter(
                [row.sent_at for row in rows],
                [row.latency_ms / 1e3 for row in rows],
                s=11,
                color=OUTCOME_COLOURS[outcome],
                label=outcome.value if rows else "_",
            )
        axis.axhline(
            comparison.plan.deadline_ms / 1e3, color="#3c4654", linestyle="--", linewidth=1
        )
        set_title(axis, run.mode.name)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: format_seconds(value))
    axes[-1].set_xlabel("seconds since the start of the run")
    handles = {
        label: handle
        for axis in axes
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside upper right",
        ncols=6,
        handlelength=1.0,
        frameon=False,
    )
    return figure


def draw_size_classes(comparison: Comparison) -> Figure:
    """Draw the share of each size class that was answered in time, one bar a mode."""
    sizes = comparison.plan.mix.tokens
    series = {
        run.mode.name: [share_on_time(run.rows, tokens) for tokens in sizes]
        for run in comparison.runs
    }
    return draw_grouped_bars(
        [f"{tokens} tokens" for tokens in sizes], series, "answered in time, of those offered"
    )


def draw_promises(runs: tuple[ModeRun, ...]) -> Figure:
    """Draw predicted against actual: the wait in the queue, and the end of the answer."""
    figure = new_figure(9.2, 4.0)
    axes = add_axes(figure, columns=2)
    pairs = (
        ("wait in the queue", "predicted_wait_ms", "queue_ms"),
        ("arrival to end of answer", "predicted_ms", "latency_ms"),
    )
    for axis, (title, predicted, actual) in zip(axes, pairs, strict=True):
        largest = 0.0
        for index, run in enumerate(runs):
            points = [
                (getattr(row, predicted) / 1e3, getattr(row, actual) / 1e3)
                for row in run.rows
                if is_answered(row) and None not in (getattr(row, predicted), getattr(row, actual))
            ]
            xs, ys = [x for x, _ in points], [y for _, y in points]
            colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
            axis.scatter(xs, ys, s=11, color=colour, alpha=0.7, label=run.mode.name)
            largest = max([largest, *xs, *ys])
        axis.plot([0, largest], [0, largest], color="#3c4654", linewidth=1, linestyle="--")
        set_title(axis, title)
        axis.set_xlabel("predicted at arrival, s")
        axis.set_ylabel("measured, s")
        axis.legend(loc="lower right", frameon=False)
    return figure


def draw_refusal_times(run: ModeRun) -> Figure:
    """Draw how long refusals took, the gateway's beside the bare handler's."""
    refused = [row.latency_ms for row in run.rows if row.outcome is Outcome.REFUSED]
    series = {
        f"gateway, {run.mode.name}": refused,
        "bare aiohttp handler, same moments": list(run.bare_refusal_ms),
    }
    return draw_cumulative({k: v for k, v in series.items() if v}, "milliseconds to the refusal")


def share_on_time(rows: tuple[RequestRow, ...], tokens: int) -> float | None:
    """Return the share of one size class that was good, None when none was offered."""
    offered = [row for row in rows if row.tokens_wanted == tokens]
    if not offered:
        return None
    return sum(row.outcome is Outcome.GOOD for row in offered) / len(offered)


def format_seconds(seconds: float) -> str:
    """Return a round time as text: 0.001 is 1 ms, 10 is 10 s."""
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1e3:g} ms"
