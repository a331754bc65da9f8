"""A comparison that is interrupted in the middle of its load leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SIMULATED = ("--server-argument=--engine=sim", "--server-argument=--sim-step-ms=4")


def processes_with(text: str) -> list[int]:
    """Return the pids of live processes whose command line holds the text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if text.encode() in words and int(path.parent.name) != os.getpid():
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_nothing_is_left_after_an_interrupt(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """Ctrl-C and SIGTERM in mid-load stop the gateway and the model server, with the usual code."""
    argv = [sys.executable, "-m", "punctual_lab.cli", "compare", "--mode=bounded", "--seconds=60"]
    with subprocess.Popen(
        [*argv, *SIMULATED, f"--out={tmp_path}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as run:
        assert run.stdout is not None
        assert any(line.startswith("Bounded:") for line in run.stdout)
        gateways = processes_with(str(tmp_path / "policies"))
        assert gateways
        servers = [pid for pid in children_of(run.pid) if pid not in gateways]
        assert servers
        run.send_signal(number)
        assert run.wait(60) == code
    limit = time.monotonic() + 60
    while alive := [pid for pid in (*gateways, *servers) if is_running(pid)]:
        assert time.monotonic() < limit, f"still running: {alive}"
        time.sleep(0.02)


def children_of(parent: int) -> list[int]:
    """Return the pids of a process's children."""
    return [
        int(child)
        for path in Path(f"/proc/{parent}/task").glob("*/children")
        for child in path.read_text().split()
    ]


def is_running(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
