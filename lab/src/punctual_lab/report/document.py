"""A report as a value (sections of text, tables and plots) and its HTML.

The file holds everything it shows: no script, no font, no picture from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup, escape

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Text:
    """One paragraph; `code` in backquotes is set as code."""

    text: str
    kind = "text"


@dataclass(frozen=True, slots=True)
class Note:
    """A paragraph set apart: what a reader must know before trusting the numbers."""

    text: str
    kind = "note"


@dataclass(frozen=True, slots=True)
class Command:
    """A command that a reader can run."""

    text: str
    kind = "command"


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table; the first column is text, the others are set to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str
    kind = "table"

    def __post_init__(self) -> None:
        """Raise ValueError when a row has not one cell a column."""
        for row in self.rows:
            if len(row) != len(self.columns):
                msg = f"row {row} has {len(row)} cells: must be {len(self.columns)}, one a column"
                raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Plot:
    """An inline SVG picture, its caption, and its description for those who do not see it."""

    svg: str
    caption: str
    description: str
    kind = "plot"


Block = Text | Note | Command | TableBlock | Plot


@dataclass(frozen=True, slots=True)
class Section:
    """A headed part of a report."""

    title: str
    blocks: tuple[Block, ...]

    @property
    def anchor(self) -> str:
        """Return the name that links to this section use."""
        return "-".join("".join(c if c.isalnum() else " " for c in self.title.lower()).split())


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the summary at the top: the value, what it is, and how it compares."""

    value: str
    label: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report: title, one paragraph that says what was found, key figures, sections."""

    title: str
    lead: str
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]


def build_html(report: Report, made_at: datetime | None = None) -> str:
    """Build the report's HTML; `made_at` is the time printed at its end (default: now, UTC)."""
    stamp = (made_at or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M UTC")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("punctual_lab.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["prose"] = _mark_code
    return environment.get_template("report.html.j2").render(report=report, made_at=stamp)


def write_report(path: Path, report: Report) -> Path:
    """Write the report's HTML file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(build_html(report), encoding="utf-8")
    return path


def _mark_code(text: str) -> Markup:
    """Escape the text and set what stands in backquotes as code."""
    parts = text.split("`")
    pieces = [
        Markup("<code>{}</code>").format(part) if i % 2 else escape(part)
        for i, part in enumerate(parts)
    ]
    return Markup("").join(pieces)
