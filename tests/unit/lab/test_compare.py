"""A comparison's summary and report, from rows made by hand."""

from __future__ import annotations

import argparse
import dataclasses
import io
from typing import TYPE_CHECKING

import orjson
import pytest
from rich.console import Console

from punctual_admission.outcomes import Outcome
from punctual_lab.commands import compare as command
from punctual_lab.compare.output import print_comparison, write_comparison
from punctual_lab.compare.plan import BurstRun, Comparison, ComparisonPlan, ModeRun
from punctual_lab.compare.runner import build_plan_trace, find_effective_load
from punctual_lab.compare.summary import summarise_comparison
from punctual_lab.load.rows import RequestRow
from punctual_lab.load.summary import count_by_tier
from punctual_lab.policies import ALL_MODES, PREDICTIVE, UNLIMITED, ModeUnderTest
from punctual_lab.traces import TraceRequest, offered_seconds

if TYPE_CHECKING:
    from pathlib import Path

SERVICE = {4: 0.04, 16: 0.13, 64: 0.5}
MODE_KEYS = {outcome.value for outcome in Outcome} | {"total", "latency_ms", "refusal_ms"}


def row(index: int, outcome: Outcome, *, tokens: int = 4, latency_ms: float = 100.0) -> RequestRow:
    """Build a row."""
    refused = outcome is Outcome.REFUSED
    return RequestRow(
        index=index,
        planned_at=index / 10,
        sent_at=index / 10,
        deadline_ms=2000,
        prompt_tokens=16,
        tokens_wanted=tokens,
        tokens_received=0 if refused else tokens,
        outcome=outcome,
        status=503 if refused else 200,
        latency_ms=latency_ms,
        total_ms=latency_ms,
        predicted_ms=None if refused else latency_ms * 1.1,
        predicted_wait_ms=None if refused else 50.0,
        queue_ms=None if refused else 45.0,
    )


def mode_run(mode: ModeUnderTest, rows: tuple[RequestRow, ...]) -> ModeRun:
    """Build a run with the burst that Predictive has."""
    burst = BurstRun((3.0, 4.0), (2.0, 2.0), (9,), (1.0,)) if mode == PREDICTIVE else None
    return ModeRun(
        mode=mode,
        rows=rows,
        probe_before=0.13,
        probe_after=0.14,
        effective_load=2.0,
        bare_refusal_ms=(0.5, 0.6),
        warnings=("the generator fell behind",) if mode == UNLIMITED else (),
        burst=burst,
    )


@pytest.fixture
def comparison() -> Comparison:
    """Build a comparison of two modes."""
    trace = tuple(TraceRequest(i, i / 10, 16, 4, 2000) for i in range(3))
    late = row(1, Outcome.LATE, tokens=64, latency_ms=4000.0)
    unlimited = (row(0, Outcome.GOOD), late, row(2, Outcome.GOOD))
    refused = row(1, Outcome.REFUSED, tokens=64, latency_ms=1.0)
    predictive = (row(0, Outcome.GOOD), refused, row(2, Outcome.GOOD, tokens=16))
    runs = (mode_run(UNLIMITED, unlimited), mode_run(PREDICTIVE, predictive))
    plan = ComparisonPlan(modes=(UNLIMITED, PREDICTIVE))
    return Comparison(plan, SERVICE, trace, runs)


def test_the_summary_holds_what_a_reader_compares(comparison: Comparison) -> None:
    """Each mode has all outcomes, quantiles and size classes; inputs and speeds stand beside."""
    summary = summarise_comparison(comparison)
    assert set(summary["modes"]) == {"Unlimited", "Predictive"}
    for values in summary["modes"].values():
        assert values.keys() >= MODE_KEYS
        assert sum(values[outcome.value] for outcome in Outcome) == values["total"] == 3
    predictive = summary["modes"]["Predictive"]
    assert predictive["by_tokens"]["64"] == {"offered": 1, "good": 0}
    assert predictive["refusal_ms"] == {"p50": 1.0, "p99": 1.0}
    assert (summary["speed_probe_before"], summary["speed_probe_after"]) == (0.13, 0.14)
    assert summary["effective_load"] == 2.0
    assert (summary["seed"], summary["model"]) == (1, "random:lab")
    assert summary["warnings"] == ["Unlimited: the generator fell behind"]


def test_refusals_stand_beside_the_bare_handlers(comparison: Comparison) -> None:
    """Ratios are of the same quantile; a mode without refusals has none."""
    refusal = summarise_comparison(comparison)["refusal"]
    assert refusal["sustained"]["Predictive"]["ratio"]["p50"] == 2.0
    assert refusal["sustained"]["Unlimited"]["ratio"] == {"p50": None, "p99": None}
    assert refusal["burst_of_30"]["ratio"]["p50"] == 1.5
    assert refusal["burst_of_30"]["admitted_per_burst"] == [9]


def test_everything_is_written(comparison: Comparison, tmp_path: Path) -> None:
    """Summary and report are files that can be read back."""
    summary = summarise_comparison(comparison)
    write_comparison(comparison, summary, tmp_path, title="A title", command="make demo")
    assert orjson.loads((tmp_path / "summary.json").read_bytes()) == summary
    html = (tmp_path / "report.html").read_text()
    for text in ("A title", "2 of 3", "Predictive", "make demo", "the generator fell behind"):
        assert text in html


def test_the_tables_fit_a_terminal(comparison: Comparison, tmp_path: Path) -> None:
    """At 80 columns no count is cut."""
    console = Console(width=80, file=io.StringIO(), record=True)
    print_comparison(summarise_comparison(comparison), console, tmp_path)
    text = console.export_text()
    assert "cancelled" in text
    assert "…" not in text


def test_the_trace_offers_the_load_that_is_reported() -> None:
    """With unchanged speed the effective load is the trace's work over its duration."""
    plan = ComparisonPlan(seconds=40.0)
    trace = build_plan_trace(plan, SERVICE)
    load = find_effective_load(trace, SERVICE, plan.seconds, (SERVICE[16], SERVICE[16]))
    assert load == pytest.approx(offered_seconds(trace, SERVICE) / plan.seconds)
    assert load == pytest.approx(plan.load, rel=0.01)
    slower = find_effective_load(trace, SERVICE, plan.seconds, (SERVICE[16], 3 * SERVICE[16]))
    assert slower == pytest.approx(2 * load)


def test_the_command_line_builds_the_plan() -> None:
    """Arguments become the plan; without --mode all modes run."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command.build_plan(parser.parse_args([])) == ComparisonPlan()
    given = ["--mode", "predictive", "--load", "1.5", "--server-argument=--engine=sim"]
    plan = command.build_plan(parser.parse_args(given))
    assert plan.modes == (PREDICTIVE,)
    assert plan.server_arguments == ("--engine=sim",)
    assert ComparisonPlan().modes == ALL_MODES


def test_outcomes_are_counted_for_each_tier() -> None:
    """All six apart; and nothing where no request has a tier."""
    rows = [row(0, Outcome.GOOD), row(1, Outcome.LATE), row(2, Outcome.GOOD)]
    assert count_by_tier(rows) == {}
    tiered = [dataclasses.replace(one, tier="gold") for one in rows[:2]]
    counted = count_by_tier([*tiered, rows[2]])
    assert (counted["gold"]["good"], counted["gold"]["late"], counted["gold"]["total"]) == (1, 1, 2)
    assert (counted[""]["total"], counted[""]["good_tokens"]) == (1, 4)
