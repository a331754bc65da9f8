"""`punctual-lab load` against a real server."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from punctual_admission.outcomes import Outcome
from punctual_lab.cli import main
from punctual_lab.commands import load
from punctual_lab.compare.runner import start_bare_refuser
from punctual_lab.load.rows import read_rows
from punctual_lab.processes import Stack

if TYPE_CHECKING:
    from pathlib import Path

    from punctual_lab.traces import Trace


def test_rows_and_tables_come_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each request has a row; an ignoring client has tried as often as it may."""
    rows = tmp_path / "rows.jsonl"
    with Stack(tmp_path / "logs") as stack:
        url = start_bare_refuser(stack).url
        arguments = ["--burst=5", "--retry=ignore", "--deadline-ms=500", f"--rows={rows}"]
        assert main(["load", url, *arguments]) == 0
    read = read_rows(rows)
    assert [row.outcome for row in read] == [Outcome.REFUSED] * 5
    assert {row.attempts for row in read} == {5}
    assert {row.refusal_code for row in read} == {"constant"}
    assert "refused" in capsys.readouterr().out


def build(*words: str) -> Trace:
    """Build the trace of a command line."""
    parser = argparse.ArgumentParser()
    load.add_arguments(parser)
    return load.build_trace(parser.parse_args(["http://127.0.0.1:1", *words]))


def test_the_command_line_chooses_the_trace(tmp_path: Path) -> None:
    """Poisson by default; one burst, repeated bursts or a recorded workload when asked."""
    assert len(build("--rate=10", "--seconds=20")) > 100
    assert Counter(r.at_seconds for r in build("--burst=3")) == {0.0: 3}
    repeated = build("--burst=3", "--every=10", "--seconds=20", "--deadline-ms=700")
    assert Counter(r.at_seconds for r in repeated) == {0.0: 3, 10.0: 3}
    assert {r.deadline_ms for r in repeated} == {700}
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,44\n")
    (recorded,) = build(f"--recorded={path}", "--limit=5")
    assert (recorded.prompt_tokens, recorded.max_tokens) == (374, 44)


def test_a_recorded_trace_that_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file is an error message with exit code 2, not a traceback."""
    assert main(["load", "http://127.0.0.1:1", f"--recorded={tmp_path / 'no.csv'}"]) == 2
    assert "no.csv" in capsys.readouterr().err
