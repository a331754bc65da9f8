"""The decision log's file: what is written, when a new one begins, and what a gap looks like."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from punctual_admission.ledger import Ledger
from punctual_admission.policy import policy_from_spec
from punctual_admission.recording.player import Player
from punctual_admission.recording.recorder import record
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Request
from punctual_gateway import decision_log
from punctual_gateway.decision_log import DecisionLog
from punctual_gateway.settings import parse_settings
from punctual_lab.decision_log import read_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LARGE = 1_000_000_000


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread looks often, and a gap may end at once."""
    monkeypatch.setattr(decision_log, "WRITE_EVERY", 0.005)
    monkeypatch.setattr(decision_log, "RESUME_AFTER", 0.0)


def play(path: Path) -> Player:
    player = Player()
    for line in read_lines(path):
        player.feed(line)
    return player


def begin_of_files(folder: Path) -> dict[str, bool]:
    """Whether each file begins with a checkpoint."""
    return {
        path.name: b'"checkpoint"' in path.read_bytes().splitlines()[0] for path in folder.iterdir()
    }


def decide(ledger: Ledger, numbers: range) -> None:
    for number in numbers:
        now = number * 0.001
        ledger.offer(Request(f"r{number}", 3, 16, now, now + 0.5), now)


def build_ledger(sink: DecisionLog) -> Ledger:
    ledger = record(Ledger(policy_from_spec({"model": "m"})), sink)
    ledger.join_pod("a", ServiceModel((0.01,)), 0.0)
    return ledger


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110  # a thread has no event for each state
        await asyncio.sleep(0.002)


def test_what_was_decided_is_in_the_file_when_the_log_is_closed(tmp_path: Path) -> None:
    written = DecisionLog(tmp_path / "log", LARGE)
    decide(build_ledger(written), range(50))
    written.close()
    player = play(tmp_path / "log")
    assert (player.decisions, player.differences) == (50, [])
    assert (written.lines, written.dropped, written.problem) == (51, 0, None)
    first = next(read_lines(tmp_path / "log"))
    assert first["version"]
    assert first["wall"] > 1e9


def test_standard_output_takes_the_lines_too(capfd: pytest.CaptureFixture[str]) -> None:
    written = DecisionLog(None, 2000)
    decide(build_ledger(written), range(20))
    written.close()
    lines: list[dict[str, Any]] = [orjson.loads(one) for one in capfd.readouterr().out.splitlines()]
    assert sum("request" in line for line in lines) == 20


async def test_a_full_file_is_kept_once_and_each_file_begins_with_a_checkpoint(
    tmp_path: Path,
) -> None:
    written = DecisionLog(tmp_path / "log", 4000)
    ledger = build_ledger(written)
    for number in range(300):
        decide(ledger, range(number, number + 1))
        if number % 10 == 0:
            await until(lambda: not written._waiting)
    written.close()
    assert begin_of_files(tmp_path) == {"log": True, "log.1": True}
    player = play(tmp_path / "log")
    assert player.differences == []
    assert player.checkpoints >= 2


async def test_a_full_buffer_drops_and_the_log_goes_on_behind_a_checkpoint_that_says_how_many(
    tmp_path: Path,
) -> None:
    written = DecisionLog(tmp_path / "log", LARGE, buffer=10_000)
    ledger = build_ledger(written)
    decide(ledger, range(100))
    assert written.dropped > 0
    await until(lambda: not written._waiting)
    decide(ledger, range(100, 105))
    written.close()
    player = play(tmp_path / "log")
    assert player.dropped == written.dropped
    assert player.differences == []
    assert player.decisions >= 4


async def test_a_log_that_cannot_be_written_holds_nobody_up_and_resumes(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    written = DecisionLog(folder / "log", LARGE)
    ledger = build_ledger(written)
    decide(ledger, range(10))
    await until(lambda: written.problem is not None)
    assert "later" in str(written.problem)
    folder.mkdir()
    await until(lambda: written.problem is None)
    decide(ledger, range(10, 20))
    written.close()
    player = play(folder / "log")
    assert (player.dropped, written.problem) == (written.dropped, None)
    assert player.differences == []
    assert player.decisions + player.dropped >= 20


def test_a_log_goes_on_in_a_file_that_ends_within_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for _ in range(2):
        written = DecisionLog(path, LARGE)
        decide(build_ledger(written), range(10))
        written.close()
        path.write_bytes(path.read_bytes()[:-40])
    player = play(path)
    assert (player.decisions, player.checkpoints) == (18, 2)


def test_other_output_in_the_same_stream_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written = DecisionLog(path, LARGE)
    decide(build_ledger(written), range(3))
    written.close()
    path.write_bytes(b'INFO hello\n[1]\n{"level": "x"}\n' + path.read_bytes())
    assert play(path).decisions == 3


def test_the_command_line_says_where_decisions_go() -> None:
    arguments = ["--policy", "p", "--backend", "http://a", "--decision-log", "-"]
    settings = parse_settings([*arguments, "--decision-log-mebibytes", "2"])
    assert (str(settings.decision_log), settings.decision_log_bytes) == ("-", 2_097_152)
    assert parse_settings(arguments[:4]).decision_log is None
