"""`punctual-lab report`: every experiment, one page."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from punctual_lab.experiments import (
    autoscale,
    bound,
    burst,
    estimation,
    fairness,
    gateways,
    leaving,
    memory,
    noise,
    observe,
    offers,
    quotas,
    replay,
    retries,
    sweep,
    theory,
    tiers,
    trace,
)
from punctual_lab.experiments.frame import (
    Experiment,
    add_common_arguments,
    measure,
    options_of,
    print_tables,
)
from punctual_lab.report.document import Figure, Report, Section, write_report

if TYPE_CHECKING:
    import argparse

    from punctual_lab.experiments.frame import Options, Summary

NAME = "report"
HELP = "run every experiment and write one page with all of them"
LEAD = (
    "Everything below runs the gateway's own admission code on virtual time: the same decisions, "
    "no network and no GPU. The last two sections hold it against real gateways in front of a "
    "model server whose engine sleeps. Each section names the command that makes it again."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--recorded", type=Path, help="a recorded workload for the trace section")
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run all experiments; the page is `REPORTS/report/report.html`."""
    begun = time.monotonic()
    options = options_of(args)
    sections, summaries = [], {}
    for experiment in collect_experiments(args.recorded is not None):
        if experiment.NAME == trace.NAME:
            options.extra.update(
                recorded=str(args.recorded), limit=2500, max_tokens=512, deadline=10.0
            )
        summary = measure(experiment, options)
        blocks = experiment.describe(summary)
        print_tables(options.console, blocks)
        summaries[experiment.NAME] = summary
        sections.append(Section(experiment.TITLE, tuple(blocks)))
    page = write_page(options, sections, summaries)
    options.console.print(f"{page}, {time.monotonic() - begun:.0f} s")
    return 0


def collect_experiments(recorded: bool) -> list[Experiment]:
    """The experiments in the order of the page."""
    rules = [fairness, tiers, quotas, memory, offers, leaving, observe]
    modules = [theory, sweep, bound, burst, *rules, estimation, noise, retries, autoscale, gateways]
    modules.append(replay)
    return [cast("Experiment", module) for module in (*modules, *([trace] if recorded else []))]


def write_page(options: Options, sections: list[Section], summaries: dict[str, Summary]) -> Path:
    """Write the page, the main figures on top."""
    report = Report("Punctual on virtual time", LEAD, build_figures(summaries), tuple(sections))
    return write_report(options.folder / NAME / "report.html", report)


def build_figures(summaries: dict[str, Summary]) -> tuple[Figure, ...]:
    """The numbers that a reader sees first."""
    cell = summaries[sweep.NAME]["cells"]["fast"]["2"]
    modes = cell["modes"]
    worst = max(abs(row["deviation"]) for row in summaries[theory.NAME]["rows"])
    return (
        Figure(f"{modes['Predictive']['share']:.0%}", "in time at load 2, Predictive"),
        Figure(
            f"{modes['Predictive + displacement']['share']:.0%}",
            "in time at load 2, with displacement",
            f"the most possible: {cell['bound']['share']:.0%}",
        ),
        Figure(f"{modes['Bounded']['share']:.0%}", "in time at load 2, Bounded 8"),
        Figure(f"{modes['Predictive']['late']}", "late answers, Predictive"),
        Figure(f"{worst:.1f}", "largest deviation from theory, standard errors"),
    )
