"""What all experiments share: their options, and from a summary to JSON, tables and a page.

An experiment is a sub-command's module with `TITLE`, `measure(options)` that returns a JSON summary
and `describe(summary)` that returns the blocks of its page. One with no arguments of its own is
called by `add_arguments = add_common_arguments` and `run = run_of(__name__)`.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from rich.console import Console

from punctual_lab.experiments.runner import run_tasks
from punctual_lab.report.document import Block, Report, Section, TableBlock, write_report
from punctual_lab.tables import build_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence
    from types import ModuleType

Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """How an experiment is run."""

    seed: int = 1
    quick: bool = False
    jobs: int | None = None
    folder: Path = Path("reports")
    console: Console = field(default_factory=Console)
    extra: dict[str, Any] = field(default_factory=dict)
    """Arguments that only this experiment has."""

    def run(
        self, name: str, work: Callable[..., Summary], tasks: Sequence[Summary]
    ) -> list[Summary]:
        """Results of the tasks, on all cores, resumed from the experiment's folder."""
        runs = self.folder / name / "runs.jsonl"
        return run_tasks(work, tasks, runs, self.console, label=name, jobs=self.jobs)

    def seeds(self, full: int, quick: int) -> list[int]:
        """So many seeds, from the one given."""
        return list(range(self.seed, self.seed + (quick if self.quick else full)))


class Experiment(Protocol):
    """What the module of an experiment offers."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a module's constant
        """The sub-command."""

    @property
    def HELP(self) -> str:  # noqa: N802 - a module's constant
        """One line, without a full stop."""

    @property
    def TITLE(self) -> str:  # noqa: N802 - a module's constant
        """The heading of its page."""

    @property
    def measure(self) -> Callable[[Options], Summary]:
        """Run it."""

    @property
    def describe(self) -> Callable[[Summary], list[Block]]:
        """The blocks of its page."""


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what every experiment takes."""
    parser.add_argument("--seed", type=int, default=1, help="seed of all randomness (default 1)")
    parser.add_argument("--quick", action="store_true", help="a reduced size, for a first look")
    parser.add_argument("--jobs", type=int, help="processes (default: one a core)")
    parser.add_argument(
        "--reports", type=Path, default=Path("reports"), help="folder of results (default reports)"
    )


def options_of(args: argparse.Namespace, **extra: Any) -> Options:
    """The options that the arguments ask for. Raises ValueError for a number of jobs below 1."""
    if args.jobs is not None and args.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {args.jobs}")
    return Options(args.seed, args.quick, args.jobs, args.reports, extra=extra)


def run_experiment(module: ModuleType, options: Options) -> Summary:
    """Measure, print the tables, write `summary.json` and `report.html`; returns the summary."""
    experiment = cast("Experiment", module)
    summary = measure(experiment, options)
    blocks = experiment.describe(summary)
    print_tables(options.console, blocks)
    folder = options.folder / experiment.NAME
    lead = f"{experiment.HELP[0].upper()}{experiment.HELP[1:]}."
    page = write_report(
        folder / "report.html",
        Report(experiment.TITLE, lead, (), (Section("Results", tuple(blocks)),)),
    )
    options.console.print(f"{folder / 'summary.json'} and {page}, {summary['seconds']:.0f} s")
    return summary


def run_of(module: str) -> Callable[[argparse.Namespace], int]:
    """The `run` of an experiment that has no arguments of its own and cannot fail."""

    def run(args: argparse.Namespace) -> int:
        run_experiment(sys.modules[module], options_of(args))
        return 0

    return run


def measure(experiment: Experiment, options: Options) -> Summary:
    """Run it and write its `summary.json`."""
    begun = time.monotonic()
    summary = experiment.measure(options)
    summary["seed"], summary["quick"] = options.seed, options.quick
    summary["seconds"] = round(time.monotonic() - begun, 1)
    folder = options.folder / experiment.NAME
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def print_tables(console: Console, blocks: Sequence[Block]) -> None:
    """Show the tables of a page on the terminal."""
    for block in blocks:
        if isinstance(block, TableBlock):
            rows = [list(row) for row in block.rows]
            console.print(build_table(block.caption, list(block.columns), rows))
