"""Child processes start, get ready, explain their failures, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from punctual_lab.processes import ProcessError, Stack, find_free_port, find_program

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVER = textwrap.dedent(
    """
    import http.server, subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("child", child.pid, flush=True)
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/readyz" else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
    """
)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Give a stack whose logs lie in the test's folder."""
    with Stack(tmp_path / "logs") as stack:
        yield stack


def launch(stack: Stack, code: str = SERVER, ready_seconds: float = 30.0) -> int:
    """Start a Python program in the stack and return its pid."""
    port = find_free_port()
    argv = [sys.executable, "-c", code, str(port)]
    return stack.launch("fake", argv, port=port, ready_seconds=ready_seconds).pid


def is_alive(pid: int) -> bool:
    """Return whether a process still runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_gone(pids: list[int], seconds: float = 60.0) -> None:
    """Wait until all are gone: the kernel ends a killed process a moment after the signal."""
    limit = time.monotonic() + seconds
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < limit, f"still running: {[p for p in pids if is_alive(p)]}"
        time.sleep(0.01)


def child_of(stack: Stack) -> int:
    """Return the pid that the fake server printed for its own child."""
    return int(stack.servers[0].log_tail().split()[1])


def test_leaving_the_block_stops_the_whole_group(tmp_path: Path) -> None:
    """The server and what it started are gone after the block, an exception included."""
    pids: list[int] = []

    def run_and_fail() -> None:
        with Stack(tmp_path) as stack:
            pids.extend([launch(stack), child_of(stack)])
            assert all(is_alive(pid) for pid in pids)
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        run_and_fail()
    wait_gone(pids)


def test_stopping_one_server_leaves_the_others(stack: Stack) -> None:
    """A stopped server leaves the stack, the other stays up."""
    first, second = launch(stack), launch(stack)
    stack.stop(stack.servers[0])
    wait_gone([first])
    assert is_alive(second)
    assert len(stack.servers) == 1


def test_a_program_that_ends_is_explained(stack: Stack) -> None:
    """The error holds name, exit code and the end of the log."""
    with pytest.raises(ProcessError, match=r"(?s)fake ended with exit code 3.*no such weights"):
        launch(stack, "import sys; print('no such weights'); sys.exit(3)")


def test_a_program_that_is_never_ready_is_explained(stack: Stack) -> None:
    """The error says how long was waited."""
    with pytest.raises(ProcessError, match="was not ready after 0 s"):
        launch(stack, "import time; time.sleep(600)", ready_seconds=0.2)


def test_a_missing_program_is_named(stack: Stack) -> None:
    """Both a missing path and a missing console script are named."""
    with pytest.raises(ProcessError, match="cannot start fake"):
        stack.launch("fake", ["/nonexistent/program"], port=1)
    with pytest.raises(ProcessError, match="punctual-nothing is neither beside"):
        find_program("punctual-nothing")


def test_a_killed_run_stops_its_children(tmp_path: Path) -> None:
    """SIGTERM to the run stops the servers as leaving the block does."""
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, time
            from pathlib import Path
            from punctual_lab.processes import Stack, exit_on_sigterm, find_free_port
            exit_on_sigterm()
            with Stack(Path(sys.argv[1])) as stack:
                port = find_free_port()
                server = stack.launch(
                    "fake", [sys.executable, "-c", sys.argv[2], str(port)], port=port
                )
                print(server.pid, server.log_tail().split()[1], flush=True)
                time.sleep(600)
            """
        )
    )
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), SERVER], stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        pids = [int(word) for word in run.stdout.readline().split()]
        assert all(is_alive(pid) for pid in pids)
        os.kill(run.pid, signal.SIGTERM)
        assert run.wait(30) == 128 + signal.SIGTERM
    wait_gone(pids)
