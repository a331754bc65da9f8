"""Background programs: started with a log in a file, stopped by their process ids."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

STOP_SECONDS = 10.0

# Waits for the end of its standard input, which the kernel closes however its writer ended.
GUARDIAN = """
cat >/dev/null
for file in "$1"/*.pid; do [ -e "$file" ] && kill -9 "$(cat "$file")" 2>/dev/null; done
rm -rf "$1/etcd" "$1"/*.pid
"""


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nothing listens on.

    It lies below the range from which outgoing connections take theirs, so that a program can be
    restarted on it later and find it free.
    """
    # a test run may have seeded the usual generator, and another run with the same seed
    numbers = random.SystemRandom()
    for _ in range(200):
        port = numbers.randrange(20000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("one of the ports 20000 to 31999 on 127.0.0.1 must be free")


class Process:
    """A program with its own log file and a file that holds its process id while it runs."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.name = Path(command[0]).name
        self.log = folder / "log" / f"{self.name}.log"
        self.pid_file = folder / f"{self.name}.pid"
        self._command = command
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program in a session of its own: Ctrl-C in the terminal must not reach it."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.log.parent)},
            )
        self.pid_file.write_text(f"{self._child.pid}\n")

    def pid(self) -> int | None:
        """Return the process id of the running program, else None."""
        if self._child is not None:
            return self._child.pid if self._child.poll() is None else None
        try:
            pid = int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if self._runs_as(pid) else None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program, if it runs."""
        pid = self.pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, *, kill: bool = False) -> None:
        """End the program and wait until it is gone; with `kill` it gets no chance to tidy up."""
        self.signal(signal.SIGKILL if kill else signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if not self._gone_within(STOP_SECONDS):
            self.signal(signal.SIGKILL)
            self._gone_within(STOP_SECONDS)
        self.pid_file.unlink(missing_ok=True)
        self._child = None

    def tail(self, lines: int = 15) -> str:
        """Return the end of the log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _gone_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self.pid() is not None:
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def _runs_as(self, pid: int) -> bool:
        # an id left in a file may by now be that of another program
        try:
            os.kill(pid, 0)
            command = Path(f"/proc/{pid}/cmdline")
            return not command.exists() or self.name.encode() in command.read_bytes()
        except OSError:
            return False


class Guardian:
    """Kills the programs with a pid file in a folder when the process that made this one dies."""

    def __init__(self, folder: Path) -> None:
        self._child = subprocess.Popen(
            ["/bin/sh", "-c", GUARDIAN, "guardian", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """End the watch, after the programs were stopped."""
        self._child.communicate()
