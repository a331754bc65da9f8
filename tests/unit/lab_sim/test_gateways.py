"""Several gateways over one pool, on virtual time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from punctual_admission.outcomes import Outcome
from punctual_lab.cli import main
from punctual_lab.experiments import gateways, reference
from punctual_lab.policies import PREDICTIVE
from punctual_lab.simulate.gateways import Gateways
from punctual_lab.simulate.world import Arrival, PodSpec, Record, World

if TYPE_CHECKING:
    from pathlib import Path


def play(number: int, *, tell: float | None, load: float = 2.0, pods: int = 1) -> list[Record]:
    policy = reference.reference_policy(PREDICTIVE, overdue="Cancel")
    pool = [PodSpec(reference.reference_model())] * pods
    return Gateways(policy, pool, number, tell=tell).run(
        reference.reference_arrivals(load * pods, 40.0, 2)
    )


def good(records: list[Record]) -> int:
    return sum(record.outcome is Outcome.GOOD for record in records)


def test_one_gateway_ends_as_in_the_world_of_one() -> None:
    """But for the way to the pod, of half a millisecond."""
    policy = reference.reference_policy(PREDICTIVE)
    world = World(policy, [PodSpec(reference.reference_model())])
    alone = world.run(reference.reference_arrivals(2.0, 40.0, 2))
    assert good(play(1, tell=None)) == pytest.approx(good(alone), rel=0.02)


@pytest.mark.parametrize("number", [2, 4])
def test_peers_answer_as_much_as_one_gateway_and_nothing_late(number: int) -> None:
    """Without peers it is less, and nothing is late either."""
    one, peers, strangers = play(1, tell=None), play(number, tell=0.002), play(number, tell=None)
    assert good(peers) >= 0.96 * good(one)
    assert good(strangers) < good(peers)
    for records in (peers, strangers):
        assert len(records) == len(one)
        assert not any(record.outcome is Outcome.LATE for record in records)


def test_a_burst_is_not_admitted_by_each_gateway() -> None:
    """What cannot be made in time is refused, or sent back by a pod, never answered late."""
    policy = reference.reference_policy(PREDICTIVE)
    pool = [PodSpec(reference.reference_model())] * 2
    burst = [Arrival(0.1, 0, 64, 2.0) for _ in range(40)]
    ends = {}
    for number in (1, 4):
        records = Gateways(policy, pool, number, tell=0.002).run(burst)
        ends[number] = good(records)
        assert {record.outcome for record in records} <= {
            Outcome.GOOD, Outcome.REFUSED, Outcome.EXPIRED,
        }  # fmt: skip
    assert ends[4] >= ends[1] - 1


def test_the_experiment_says_what_share_of_one_gateway_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has a table for each pool and load."""
    monkeypatch.setattr(gateways, "POOLS", {"1 pod of 1 slot": (1, 1)})
    monkeypatch.setattr(gateways, "LOADS", (2.0,))
    monkeypatch.setattr(gateways, "QUICK_SECONDS", 20.0)
    words = ["gateways", "--quick", "--no-live", "--jobs", "1", "--reports", str(tmp_path)]
    assert main(words) == 0
    summary = json.loads((tmp_path / "gateways" / "summary.json").read_text("utf-8"))
    rows = summary["cells"]["1 pod of 1 slot, load 2"]
    assert set(rows) == {
        "1 gateway", "2 gateways", "2, no peers", "4 gateways", "4, no peers",
    }  # fmt: skip
    assert all(row["counts"]["late"] == 0 for row in rows.values())
    assert "of one&#39;s" in (tmp_path / "gateways" / "report.html").read_text("utf-8")
