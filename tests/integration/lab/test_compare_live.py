"""A comparison from start to end: real front, simulated engine, real gateway, all modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from punctual_admission.outcomes import Outcome
from punctual_lab.cli import main
from punctual_lab.decision_log import read_lines
from punctual_lab.load.rows import read_rows

if TYPE_CHECKING:
    from pathlib import Path

SIMULATED = ("--server-argument=--engine=sim", "--server-argument=--sim-step-ms=4")


@pytest.mark.slow
def test_a_comparison_ends_with_tables_files_and_nothing_running(tmp_path: Path) -> None:
    """Each request of each mode has one outcome, and the files agree with one another."""
    out = tmp_path / "compare"
    arguments = ["--seconds=1", "--load=2", "--deadline-ms=500", "--seed=2", f"--out={out}"]
    assert main(["compare", *arguments, *SIMULATED]) == 0
    summary = orjson.loads((out / "summary.json").read_bytes())
    assert len(summary["modes"]) == 5
    totals = {mode["total"] for mode in summary["modes"].values()}
    assert len(totals) == 1
    (total,) = totals
    for mode in summary["modes"].values():
        assert sum(mode[outcome.value] for outcome in Outcome) == mode["total"]
        assert mode["failed"] == mode["cancelled"] == 0
    assert summary["modes"]["Unlimited"]["refused"] == 0
    rows = read_rows(out / "rows" / "predictive.jsonl")
    good = sum(row.outcome is Outcome.GOOD for row in rows)
    assert good == summary["modes"]["Predictive"]["good"]
    assert summary["refusal"]["burst_of_30"]["server_ms"]["p50"] > 0
    assert "Predictive" in (out / "report.html").read_text()
    # No gateway still takes the pod for busy with what was measured on it before.
    for log in sorted((out / "decisions").glob("*.jsonl")):
        first = next(line for line in read_lines(log) if "request" in line)
        assert first["answer"] == "running"
    # What was decided is decided again from the logs, number by number; and simulated, the run ends
    # as it did, its burst included.
    assert main(["replay", str(out), "--limit=0.01", f"--reports={tmp_path}"]) == 0
    replayed = orjson.loads((tmp_path / "replay" / "summary.json").read_bytes())["runs"]
    assert len(replayed) == 5
    for one in replayed.values():
        assert one["exact"]["differences"] == []
        assert one["exact"]["decisions"] == one["requests"] >= total
