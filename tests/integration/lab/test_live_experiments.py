"""Experiments that hold the simulator against real gateways, at their smallest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from punctual_lab.cli import main
from punctual_lab.experiments import gateways, replay
from punctual_lab.policies import PREDICTIVE

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_replay_makes_a_run_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no log is given."""
    monkeypatch.setattr(replay, "QUICK_SECONDS", 3.0)
    monkeypatch.setattr(replay, "LIVE_MODES", (PREDICTIVE,))
    assert main(["replay", "--quick", "--limit=0.01", f"--reports={tmp_path}"]) == 0
    runs = orjson.loads((tmp_path / "replay" / "summary.json").read_bytes())["runs"]
    assert runs["predictive"]["exact"]["decisions"] > 60
    assert runs["predictive"]["different"] == 0


@pytest.mark.slow
def test_two_gateways_share_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request ends once, and none late."""
    monkeypatch.setattr(gateways, "POOLS", {})
    monkeypatch.setattr(gateways, "QUICK_LIVE_SECONDS", 2.0)
    assert main(["gateways", "--quick", f"--reports={tmp_path}"]) == 0
    live = orjson.loads((tmp_path / "gateways" / "summary.json").read_bytes())["live"]
    totals = {row["counts"]["total"] for row in live.values()}
    assert len(totals) == 1
    for row in live.values():
        counts = row["counts"]
        assert counts["failed"] == counts["cancelled"] == 0
        assert counts["good"] > 0
