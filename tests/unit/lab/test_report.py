"""Reports: HTML that holds everything, escapes what it shows, and keeps pictures apart."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from punctual_lab.report import plots
from punctual_lab.report.document import (
    Command,
    Figure,
    Note,
    Plot,
    Report,
    Section,
    TableBlock,
    Text,
    build_html,
    write_report,
)

if TYPE_CHECKING:
    from pathlib import Path

COUNTS = {"good": 5, "late": 1, "refused": 3, "expired": 1, "failed": 0, "cancelled": 0}


def picture(name: str) -> Plot:
    """Build a small plot."""
    figure = plots.draw_outcomes({"Predictive": COUNTS, "Unlimited": COUNTS})
    return Plot(plots.build_svg(figure, name), "Counts.", "bars")


def build(*blocks: Text | Note | Command | TableBlock | Plot) -> str:
    """Build the HTML of a report with one section."""
    report = Report(
        "A <title>", "The lead.", (Figure("9", "things"),), (Section("One & two", blocks),)
    )
    return build_html(report, datetime(2026, 1, 2, 3, 4, tzinfo=UTC))


def test_text_is_escaped_and_code_is_marked() -> None:
    """Markup in text is shown, not run; backquotes set code."""
    html = build(Text("a <b> `x < 1`"), Note("look & see"), Command("make demo > out"))
    assert "a &lt;b&gt; <code>x &lt; 1</code>" in html
    assert "look &amp; see" in html
    assert "make demo &gt; out" in html
    assert "<title>A &lt;title&gt;</title>" in html
    assert "2026-01-02 03:04 UTC" in html


def test_a_section_has_an_anchor_that_the_navigation_uses() -> None:
    """The link at the top points to the section."""
    html = build(Text("x"))
    assert 'href="#one-two"' in html
    assert 'id="one-two"' in html


def test_nothing_is_loaded_from_elsewhere() -> None:
    """No script, no link, no picture or style by address."""
    html = build(picture("a"))
    assert not re.search(r"<(script|link|img|iframe)\b|@import|url\((?!#)", html)
    assert not re.search(r'(?:src|href)="(?!#)', html)


def test_pictures_on_one_page_do_not_share_ids() -> None:
    """Two pictures with the same content keep their ids apart, and references stay inside."""
    html = build(picture("a"), picture("b"))
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    references = set(re.findall(r'(?:href="#|url\(#)([^")]+)', html))
    assert references <= set(ids)


def test_the_same_figure_gives_the_same_text() -> None:
    """Reports can be compared byte by byte."""
    assert picture("a").svg == picture("a").svg


def test_a_table_with_a_missing_cell_is_refused() -> None:
    """A row must have a cell for each column."""
    with pytest.raises(ValueError, match="has 1 cells: must be 2"):
        TableBlock(("a", "b"), (("1",),), "caption")


def test_a_table_shows_its_cells(tmp_path: Path) -> None:
    """Cells and caption are in the file."""
    block = TableBlock(("mode", "good"), (("Predictive", "224"),), "Counts of `good`.")
    report = Report("T", "L", (), (Section("S", (block,)),))
    html = write_report(tmp_path / "a" / "report.html", report).read_text()
    assert "<td>224</td>" in html
    assert "<code>good</code>" in html


def test_shares_and_cumulative_plots_draw() -> None:
    """Missing values are drawn as nothing, names stand in the legend."""
    bars = plots.draw_grouped_bars(["4", "64"], {"Bounded": [0.5, None]}, "on time")
    lines = plots.draw_cumulative({"gateway": [1.0, 2.0], "bare": [0.5]}, "ms")
    assert "Bounded" in plots.build_svg(bars, "bars")
    assert "gateway" in plots.build_svg(lines, "lines")
