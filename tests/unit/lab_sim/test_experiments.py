"""Each experiment at a small size, through the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from punctual_lab.cli import main
from punctual_lab.experiments import (
    bound,
    burst,
    estimation,
    fairness,
    noise,
    retries,
    sweep,
    theory,
    trace,
)
from punctual_lab.experiments.frame import Options

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def call(tmp_path: Path, name: str, *words: str) -> dict[str, Any]:
    """Run a command; its summary."""
    assert main([name, *words, "--quick", "--jobs", "1", "--reports", str(tmp_path)]) == 0
    page = (tmp_path / name / "report.html").read_text(encoding="utf-8")
    assert "<table" in page
    summary: dict[str, Any] = json.loads((tmp_path / name / "summary.json").read_text("utf-8"))
    return summary


def shrink(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **constants: object) -> None:
    """Make an experiment a matter of a second."""
    for name, value in constants.items():
        monkeypatch.setattr(module, name, value)


def test_theory_agrees_with_closed_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 0 means that every mean lies within its standard errors."""
    shrink(monkeypatch, theory, CASES=theory.CASES[:1] + theory.CASES[4:5], QUICK_ARRIVALS=600)
    summary = call(tmp_path, "theory")
    assert {row["queue"] for row in summary["rows"]} == {"M/M/1", "M/M/1/5"}


def test_a_deviation_from_theory_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1 where the simulator and the formula disagree."""
    shrink(monkeypatch, theory, CASES=theory.CASES[:1], LIMIT=0.0, QUICK_ARRIVALS=200)
    assert main(["theory", "--quick", "--jobs", "1", "--reports", str(tmp_path)]) == 1


def test_sweep_orders_the_modes_as_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At load 2: Unlimited < Bounded < Deadline < Predictive < displacement <= bound."""
    shrink(monkeypatch, sweep, QUICK_LOADS=(1.0, 2.0), SECONDS=120.0)
    cell = call(tmp_path, "sweep")["cells"]["fast"]["2"]
    shares = [one["share"] for one in cell["modes"].values()]
    assert shares == sorted(shares)
    assert shares[-1] <= cell["bound"]["share"]
    assert cell["modes"]["Predictive"]["late"] == 0


def test_bound_agrees_with_brute_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 0, and nobody above it."""
    shrink(monkeypatch, bound, QUICK_LOADS=(2.0,), SECONDS=120.0, WINDOWS=5)
    summary = call(tmp_path, "bound")
    for cells in summary["cells"].values():
        assert all(mean <= 1.0 for mean, _ in cells["2"].values())


def test_a_burst_admits_by_time_and_not_by_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded lets nine in whatever they are, and Predictive breaks no promise."""
    shrink(monkeypatch, burst, QUICK_SIZES=(4, 30), PERIODS=3)
    summary = call(tmp_path, "burst")
    bounded = summary["at_once"]["Bounded"]
    assert bounded["total"] - bounded["refused"] == 9 * summary["bursts"]
    assert summary["first_failures"]["Predictive"]["broken"] is None


def test_fairness_shows_who_pays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under Predictive the short are answered and the long are not."""
    shrink(monkeypatch, fairness, QUICK_LOADS=(2.0,), SECONDS=240.0)
    one = call(tmp_path, "fairness")["cells"]["2"]["Predictive"]["by_tokens"]
    assert one["4"]["good"] / one["4"]["offered"] > 0.9
    assert one["64"]["good"] / one["64"]["offered"] < 0.4


def test_retries_count_requests_and_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that ignore the advice call more often than those that give up."""
    shrink(monkeypatch, retries, QUICK_LOADS=(2.0,), SECONDS=120.0, MODES=("Bounded",))
    cells = call(tmp_path, "retries")["cells"]
    calls = {key.split("/")[2]: cell["attempts"] / cell["requests"] for key, cell in cells.items()}
    assert calls["none"] == 1.0
    assert calls["ignore"] > calls["budget"] > 1.0
    assert calls["budget"] < 1.2
    for cell in cells.values():
        ended = cell["good"] + cell["late"] + cell["given_up"] + cell["expired"]
        assert ended == cell["requests"]


def test_tracking_keeps_promises_through_a_slowdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fixed estimate does not."""
    shrink(monkeypatch, estimation, SECONDS=400.0, SLOWDOWN_LOADS=(1.0,), LOADS=(1.0,))
    shrink(monkeypatch, estimation, SLOW_LOADS=(), HABITS={"about half": (0.45, 0.55)})
    summary = call(tmp_path, "estimation")
    slowed = summary["speeds"]["1"]
    assert slowed["Fixed, no margin"]["late"] > 20 * slowed["Tracking"]["late"]
    known = summary["lengths"]["about half, 1"]
    assert known["learned 99"]["lost"] < 0.01 < known["maximum"]["lost"]
    assert known["learned 99"]["broken"] <= 0.01


def test_a_margin_keeps_promises_and_a_probe_spares_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less is late with a margin, and more is answered by a slow pod that was probed."""
    shrink(monkeypatch, noise, DEVIATIONS=(0.1,), SECONDS=400.0, COLD_SLOW=(2.25,))
    summary = call(tmp_path, "noise")
    bare, _, kept = summary["margin"]
    assert kept["late"] + kept["expired"] < (bare["late"] + bare["expired"]) / 2
    assert kept["good"] >= 0.99 * (kept["good"] + kept["late"] + kept["expired"])
    cold, probed = summary["probe"]
    assert probed["good"] > cold["good"]


def write_trace(path: Path, count: int = 300) -> Path:
    """A recorded workload."""
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    lines += [
        f"2023-11-16 18:{15 + i // 60:02d}:{i % 60:02d}.5,{i % 700},{1 + (i * 37) % 400}"
        for i in range(count)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_recorded_workload_is_played_at_its_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Knowing the lengths answers more than assuming the maximum."""
    shrink(monkeypatch, trace, POOLS={"1 slot": (1, 0.0)}, LOADS=(2.0,))
    summary = call(tmp_path, "trace", str(write_trace(tmp_path / "t.csv")))
    cell = summary["cells"]["1 slot, load 2"]
    assert cell["maximum"]["good"] < cell["true lengths"]["good"] <= cell["true lengths"]["bound"]
    blind = max(cell[name]["good"] for name in cell if name.startswith("blind"))
    assert cell["best blind"]["good"] == blind


def test_scouts_of_a_recorded_workload_are_told_from_those_with_a_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The maximum is out of reach, and prompts tell nothing: all are scouts, and none is broken."""
    rule = {"learned 95": trace.RULES["learned 95"]}
    shrink(monkeypatch, trace, POOLS={"4 slots": (4, 0.0)}, LOADS=(0.5,), RULES=rule, BLIND=rule)
    options = Options(folder=tmp_path, jobs=1, extra={
        "recorded": str(write_trace(tmp_path / "t.csv")), "limit": 300, "parts": 1,
        "max_tokens": 512, "deadline": 2.0,
    })  # fmt: skip
    counts = trace.measure(options)["cells"]["4 slots, load 0.5"]["learned 95"]
    assert counts["scouts"] > counts["scouts_late"] > 0
    assert counts["good"] + counts["late"] == counts["scouts"]
    assert trace.share_broken(counts) == 0


def test_parts_of_a_recorded_workload_are_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each at the load that is asked for; a file that is too short is named."""
    path = write_trace(tmp_path / "t.csv")
    blind = {"blind 90": trace.RULES["blind 90"]}
    shrink(monkeypatch, trace, POOLS={"1 slot": (1, 0.0)}, LOADS=(1.0,), RULES=blind, BLIND=blind)
    options = Options(folder=tmp_path, jobs=1, extra={
        "recorded": str(path), "limit": 100, "parts": 3, "max_tokens": 512, "deadline": 10.0,
    })  # fmt: skip
    counts = trace.measure(options)["cells"]["1 slot, load 1"]["blind 90"]
    assert counts["total"] == 300
    with pytest.raises(ValueError, match="--parts must be at most 3"):
        trace.read_part(path, 100, 512, 3)
    assert main(["trace", str(path), "--parts", "0"]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["replay", "NOWHERE"], "must be a decision log or hold decisions/NAME.jsonl"),
        (["replay", "NOWHERE", "--pods", "0"], "--pods must be at least 1"),
        (["replay", "NOWHERE", "--change", "mode"], "--change must be PATH=VALUE"),
        (["sweep", "--jobs", "0"], "--jobs must be at least 1"),
    ],
)
def test_wrong_use_is_explained(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and a sentence."""
    placed = [str(tmp_path) if word == "NOWHERE" else word for word in words]
    assert main([*placed, "--reports", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
