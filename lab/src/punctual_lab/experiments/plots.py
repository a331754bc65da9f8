"""Figures of the experiments: lines over a quantity, in the reports' common look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from punctual_lab.report.plots import SERIES_COLOURS, add_axes, new_figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure


def draw_lines(
    places: Sequence[float],
    series: Mapping[str, Sequence[float]],
    x_label: str,
    y_label: str,
    *,
    shares: bool = True,
) -> Figure:
    """One line a series over `places`; the y axis in percent when the values are shares."""
    figure = new_figure(9.2, 3.4)
    (axis,) = add_axes(figure)
    for index, (name, values) in enumerate(series.items()):
        colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
        axis.plot(places, values, marker="o", markersize=3.5, label=name, color=colour)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    if shares:
        axis.set_ylim(0, 1.03)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, handlelength=1.4)
    return figure
