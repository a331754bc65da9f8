"""A pool that an autoscaler sizes, on virtual time."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from punctual_admission.outcomes import Outcome
from punctual_lab.experiments import autoscale
from punctual_lab.experiments.autoscale import build_fleet
from punctual_lab.experiments.frame import Options, run_experiment
from punctual_lab.experiments.scenario import Scenario, build_scenario
from punctual_lab.simulate.fleet import Fleet, Signal
from punctual_lab.simulate.world import Record


def played(
    signal: Signal, plan: Scenario, seconds: float = 420.0, start: float = 60.0
) -> tuple[Fleet, list[Record]]:
    fleet = build_fleet(plan, start, signal, seconds, seed=1)
    return fleet, fleet.run([one for one in plan.arrivals(1) if one.at < seconds])


def step(**changes: object) -> Scenario:
    load = [{"seconds": 120, "load": 0.6}, {"seconds": 600, "load": 4.8}]
    return build_scenario("x", {"load": load, **changes})


def test_offered_work_asks_for_all_pods_within_two_syncs() -> None:
    fleet, _ = played(Signal.OFFERED_WORK, step(), 210.0)
    assert 6 <= fleet.samples[-1].pods <= 8


def test_admitted_work_lags_behind_by_a_pod_start_each_time() -> None:
    fleet, _ = played(Signal.ADMITTED_WORK, step(), 180.0)
    assert fleet.samples[-1].pods <= 3


def test_pod_works_one_start_after_it_was_asked_for() -> None:
    fleet, _ = played(Signal.OFFERED_WORK, step(), 300.0, start=60.0)
    asked = next(sample.at for sample in fleet.samples if sample.pods > 1)
    ready = next(sample.at for sample in fleet.samples if sample.ready > 1)
    assert ready - asked == pytest.approx(45.0, abs=15.0)


@pytest.mark.parametrize("signal", Signal)
def test_every_request_ends_and_admitted_ones_in_time(signal: Signal) -> None:
    fleet, records = played(signal, step())
    assert all(record.outcome is not None for record in records)
    assert not [record for record in records if record.outcome is Outcome.LATE]
    assert not fleet.ledger.queue
    assert fleet.ledger.running == 0


def test_pods_go_when_the_load_has_gone() -> None:
    load = [{"seconds": 60, "load": 2.0}, {"seconds": 900, "load": 0.0}]
    plan = build_scenario("x", {"load": load, "pods": 4})
    fleet, records = played(Signal.OFFERED_WORK, plan, 960.0)
    assert fleet.samples[-1].pods == 1
    assert len(fleet.engines) == 1
    assert all(record.outcome is Outcome.GOOD for record in records)


def test_retries_of_refused_clients_do_not_ask_for_more_pods() -> None:
    calm, _ = played(Signal.OFFERED_WORK, step(), 240.0)
    storm, records = played(Signal.OFFERED_WORK, step(retries="ignore"), 240.0)
    assert sum(record.attempt > 1 for record in records) > 500
    loads = [fleet.samples[-1].load or 0.0 for fleet in (calm, storm)]
    assert loads[1] == pytest.approx(loads[0], rel=0.05)


def test_command_writes_tables_and_plots(tmp_path: Path) -> None:
    path = tmp_path / "step.yaml"
    path.write_text("load: [{seconds: 90, load: 0.5}, {seconds: 90, load: 2}]\npod_starts: [30]\n")
    options = Options(
        quick=True,
        jobs=1,
        folder=tmp_path,
        console=Console(file=io.StringIO(), width=200),
        extra={"scenarios": [str(path)], "signals": ["offered work"], "seeds": 2},
    )
    one = run_experiment(autoscale, options)["cells"][str(path)]["30"]
    assert set(one) == {"offered work"}
    assert len(one["offered work"]["all_changes"]) == 2
    options.extra.update(signals=[], seeds=None)
    summary = run_experiment(autoscale, options)
    cells = summary["cells"][str(path)]["30"]
    assert set(cells) == {signal.value for signal in Signal}
    assert "offered work (0.7, AverageValue)" in (tmp_path / "autoscale/report.html").read_text()
