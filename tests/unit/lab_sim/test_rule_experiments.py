"""The experiments about single rules, each at a small size, through the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from punctual_lab.cli import COMMANDS, main
from punctual_lab.experiments import leaving, memory, observe, offers, quotas, report, tiers
from punctual_lab.experiments.tally import share_good

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


@pytest.fixture
def cells(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The only load's cell of an experiment, after a run of a second."""
    module, constants = request.param
    for name, value in constants.items():
        monkeypatch.setattr(module, name, value)
    return run(module, tmp_path)


def run(module: ModuleType, folder: Path) -> dict[str, Any]:
    """Run the command; the cell of its only load."""
    words = [module.NAME, "--quick", "--jobs", "1", "--reports", str(folder)]
    assert main(words) == 0
    assert "<table" in (folder / module.NAME / "report.html").read_text(encoding="utf-8")
    summary = json.loads((folder / module.NAME / "summary.json").read_text("utf-8"))
    (cell,) = summary["cells"].values()
    found: dict[str, Any] = cell
    return found


def experiment(module: ModuleType, **constants: object) -> pytest.MarkDecorator:
    """Run this experiment with these constants."""
    return pytest.mark.parametrize("cells", [(module, constants)], indirect=True, ids=[module.NAME])


@experiment(tiers, RESERVED=(0, 50), SECONDS=240.0)
def test_a_reserved_share_serves_its_tier_at_the_cost_of_the_other(cells: dict[str, Any]) -> None:
    """And nothing is late."""
    none, half = cells["0"], cells["50"]
    assert share_good(half["interactive"]) > share_good(none["interactive"]) + 0.15
    assert share_good(half["batch"]) < share_good(none["batch"])
    assert sum(counts["late"] for counts in (*none.values(), *half.values())) == 0


@experiment(quotas, SECONDS=240.0)
def test_a_quota_keeps_a_flood_from_the_others(cells: dict[str, Any]) -> None:
    """The flood is told that it is the client, and steady clients hardly are."""
    free, limited = cells.values()
    assert share_good(limited["steady"]) > 0.95 > share_good(free["steady"])
    assert limited["flood"]["over_quota"] > 0.5 * limited["flood"]["total"]
    assert limited["steady"]["over_quota"] < 0.02 * limited["steady"]["total"]
    assert free["flood"]["over_quota"] == 0


@experiment(observe, QUICK_LOADS=(1.5,), SECONDS=240.0)
def test_observe_refuses_nothing_and_counts(cells: dict[str, Any]) -> None:
    """What would have been refused is flagged, and answered late."""
    enforce, watch = cells["Enforce"], cells["Observe"]
    assert (watch["refused"], enforce["would_refuse"]) == (0, 0)
    assert watch["would_refuse"] > enforce["refused"] > 0
    assert watch["late"] > 0.5 * watch["total"]


@experiment(leaving, QUICK_RATES=(0.3,), SECONDS=240.0)
def test_stopping_work_of_clients_that_left_serves_those_that_stay(cells: dict[str, Any]) -> None:
    """Work for nobody is wasted when it goes on, and saved when it stops."""
    stopped, on = cells["stopped"], cells["goes on"]
    assert stopped["staying_good"] > on["staying_good"]
    assert stopped["wasted"] < on["wasted"] / 3
    assert stopped["saved"] > on["saved"] == 0


@experiment(memory, SECONDS=60.0)
def test_the_memory_gate_never_starts_what_does_not_fit(cells: dict[str, Any]) -> None:
    """Without it most starts would come to need more than there is."""
    assert cells["no gate"]["short"] > 0
    assert cells["worst case"]["short"] == 0
    assert cells["worst case"]["no_memory"] > 0 == cells["no gate"]["no_memory"]


@experiment(offers, QUICK_LOADS=(2.0,), SECONDS=240.0, QUEUES=(10,), ROUNDS=5)
def test_clients_that_take_the_offer_are_answered_with_fewer_tokens(cells: dict[str, Any]) -> None:
    """More are answered in time, about as many tokens are made, and nobody is late."""
    none, every = cells["0%"], cells["100%"]
    assert share_good(every) > share_good(none)
    assert 0 < every["shorter_tokens"] < every["asked_tokens"]
    assert every["good_tokens"] > 0.9 * none["good_tokens"]
    assert none["late"] + every["late"] == 0


def test_the_page_of_all_has_each_rule_and_each_is_a_command() -> None:
    """With a heading of its own."""
    collected = report.collect_experiments(recorded=True)
    names = [experiment.NAME for experiment in collected]
    assert {"offers", "quotas", "tiers", "memory", "leaving", "observe"} <= set(names)
    assert set(names) <= set(COMMANDS)
    assert len(set(names)) == len({experiment.TITLE for experiment in collected}) == len(names)
