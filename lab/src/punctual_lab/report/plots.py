"""Figures as inline SVG: a common look, and the shapes that several reports share."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from punctual_admission.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OUTCOME_COLOURS: dict[str, str] = {
    Outcome.GOOD: "#1b8a5a",
    Outcome.LATE: "#c8372d",
    Outcome.REFUSED: "#8fa1b8",
    Outcome.EXPIRED: "#e0a030",
    Outcome.FAILED: "#222222",
    Outcome.CANCELLED: "#a98bc9",
}
SERIES_COLOURS = ("#0b6e75", "#c98a1b", "#5566aa", "#b04a6b", "#6b7280", "#4f9d3a")
STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa5b1",
    "axes.labelcolor": "#3c4654",
    "axes.titlesize": 10,
    "xtick.color": "#3c4654",
    "ytick.color": "#3c4654",
    "grid.color": "#e6eaef",
    "svg.fonttype": "none",
}


def new_figure(width: float, height: float) -> Figure:
    """Make an empty figure of so many inches."""
    with mpl.rc_context(STYLE):
        return Figure(figsize=(width, height), layout="constrained")


def add_axes(figure: Figure, rows: int = 1, columns: int = 1, **options: Any) -> list[Any]:
    """Add a grid of axes in the common style and return them in reading order."""
    with mpl.rc_context(STYLE):
        grid = figure.subplots(rows, columns, squeeze=False, **options)
        axes = [axis for row in grid for axis in row]
        for axis in axes:
            axis.grid(visible=True, axis="y", linewidth=0.8)
            axis.set_axisbelow(True)
        return axes


def set_title(axis: Any, title: str) -> None:
    """Set a title at the left, in bold."""
    axis.set_title(title, loc="left", fontweight="bold", fontsize=10)


def build_svg(figure: Figure, name: str) -> str:
    """Build the SVG text of a figure; `name` keeps its ids apart from other figures on the page."""
    buffer = io.StringIO()
    with mpl.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    return _prefix_ids(svg, name)


def draw_outcomes(counts: Mapping[str, Mapping[str, int]]) -> Figure:
    """Draw one stacked bar a row, from good to cancelled, with the counts written in."""
    figure = new_figure(9.2, 0.9 + 0.48 * len(counts))
    (axis,) = add_axes(figure)
    names = list(counts)
    left = [0] * len(names)
    for outcome in Outcome:
        widths = [counts[name][outcome.value] for name in names]
        if not any(widths):
            continue
        bars = axis.barh(names, widths, left=left, color=OUTCOME_COLOURS[outcome], height=0.66)
        labels = [str(width) if width else "" for width in widths]
        axis.bar_label(bars, labels, label_type="center", color="white", fontsize=9)
        bars.set_label(outcome.value)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.invert_yaxis()
    axis.grid(visible=False)
    axis.set_xlabel("requests")
    axis.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=6, handlelength=1.0, frameon=False
    )
    return figure


def draw_grouped_bars(
    groups: Sequence[str], series: Mapping[str, Sequence[float | None]], label: str
) -> Figure:
    """Draw one group of bars for each of `groups`, one bar a series; shares from 0 to 1."""
    figure = new_figure(9.2, 3.2)
    (axis,) = add_axes(figure)
    width = 0.8 / max(1, len(series))
    for index, (name, values) in enumerate(series.items()):
        places = [group + (index - (len(series) - 1) / 2) * width for group in range(len(groups))]
        heights = [0.0 if value is None else value for value in values]
        colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
        bars = axis.bar(places, heights, width * 0.92, label=name, color=colour)
        axis.bar_label(bars, [f"{h:.0%}" for h in heights], fontsize=8, padding=1)
    axis.set_xticks(range(len(groups)), groups)
    axis.set_ylim(0, 1.08)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.set_ylabel(label)
    axis.legend(
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=len(series),
        handlelength=1.0,
        frameon=False,
    )
    return figure


def draw_cumulative(series: Mapping[str, Sequence[float]], label: str) -> Figure:
    """Draw the share of values at or below x (log scale), one line a series."""
    figure = new_figure(9.2, 3.0)
    (axis,) = add_axes(figure)
    for index, (name, values) in enumerate(series.items()):
        ordered = sorted(values)
        shares = [(rank + 1) / len(ordered) for rank in range(len(ordered))]
        colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
        axis.step(ordered, shares, where="post", label=name, color=colour, linewidth=1.6)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_ylim(0, 1.02)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.set_xlabel(label)
    axis.set_ylabel("share at or below")
    axis.legend(loc="lower right", frameon=False)
    return figure


def _prefix_ids(svg: str, name: str) -> str:
    """Give each id of an SVG a prefix: inline pictures share the page's one space of ids."""
    prefix = re.sub(r"\W+", "-", name)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", svg)
