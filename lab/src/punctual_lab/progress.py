"""Progress bars for long work; redrawn once a second, so that drawing does not disturb a
measurement.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from punctual_lab.load.rows import RequestRow


def build_progress(console: Console) -> Progress:
    """Build a progress display with count and elapsed time."""
    return Progress(
        TextColumn("{task.description:<28}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        refresh_per_second=1,
        disable=not console.is_terminal,
    )


@contextmanager
def track_requests(
    console: Console, label: str, total: int
) -> Iterator[Callable[[RequestRow], None]]:
    """Show how many of `total` requests have ended; yields the callback for `run_load`.

    Where the output is no terminal, one line at the start stands for the bar.
    """
    if not console.is_terminal:
        console.print(f"{label}: {total} requests ...")
    with build_progress(console) as progress:
        task = progress.add_task(label, total=total)

        def on_row(_: RequestRow) -> None:
            progress.advance(task)

        yield on_row
