"""Starts model servers and gateways as child processes and stops every one of them at the end.

Each child has its own process group, so that stopping it also stops what it spawned, and its own
log file. `Stack` is a context manager: whatever ends the block (an exception and Ctrl-C
included), nothing is left running.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STOP_SECONDS = 15.0
STOP_AT_ONCE = ("--drain-accept-seconds", "0")  # nobody but us sends work, so none is on its way
LOG_TAIL_LINES = 20
_POLL_SECONDS = 0.05


class ProcessError(RuntimeError):
    """A child process did not start, did not get ready, or ended by itself."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """One running child: its name, address, log file and process."""

    name: str
    port: int
    log: Path
    process: subprocess.Popen[bytes]
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """Return the base URL, without a slash at the end."""
        return f"http://{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """Return the process id, which is also the id of its process group."""
        return self.process.pid

    def wait_ready(self, timeout_seconds: float, path: str = "/readyz") -> None:
        """Wait until `path` answers 200. Raises ProcessError with the log's end if it does not."""
        limit = time.monotonic() + timeout_seconds
        while not _answers_ok(self.host, self.port, path):
            if (code := self.process.poll()) is not None:
                raise ProcessError(
                    self._explain(f"ended with exit code {code} before it was ready")
                )
            if time.monotonic() > limit:
                raise ProcessError(self._explain(f"was not ready after {timeout_seconds:.0f} s"))
            time.sleep(_POLL_SECONDS)

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Ask the group to end (SIGTERM), then end it (SIGKILL). Safe to call twice."""
        if self.process.poll() is None:
            _signal_group(self.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_seconds)
        _signal_group(self.pid, signal.SIGKILL)
        self.process.wait()

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the log."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _explain(self, what: str) -> str:
        args = self.process.args
        command = " ".join(map(str, args)) if isinstance(args, list) else args
        return (
            f"{self.name} {what}\ncommand: {command!s}\n"
            f"log {self.log}, last lines:\n{self.log_tail()}"
        )


@dataclass(slots=True)
class Stack:
    """The child processes of one run; leaving the `with` block stops them, youngest first."""

    log_dir: Path
    servers: list[ServerProcess] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Make the log folder."""
        self.log_dir.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything that still runs."""
        self.stop_all()

    def launch(
        self,
        name: str,
        argv: Sequence[str],
        *,
        port: int,
        environment: Mapping[str, str] | None = None,
        ready_seconds: float = 60.0,
        ready_path: str = "/readyz",
    ) -> ServerProcess:
        """Start a program that listens on `port` and wait until it is ready.

        Raises ProcessError when the program is missing, ends, or is not ready in time.
        """
        log = self.log_dir / f"{name}.log"
        with log.open("wb") as file:
            try:
                process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
                    start_new_session=True,
                )
            except OSError as error:
                msg = f"cannot start {name}: {error}; the command was {' '.join(argv)}"
                raise ProcessError(msg) from error
        server = ServerProcess(name, port, log, process)
        self.servers.append(server)
        server.wait_ready(ready_seconds, ready_path)
        return server

    def stop(self, server: ServerProcess) -> None:
        """Stop one server now."""
        server.stop()
        self.servers.remove(server)

    def stop_all(self) -> None:
        """Stop all servers, youngest first: a gateway drains before its model server goes."""
        try:
            while self.servers:
                self.servers[-1].stop()
                self.servers.pop()
        except BaseException:
            self._kill_all()
            raise

    def _kill_all(self) -> None:
        """End everything at once: stopping in order was itself interrupted."""
        for server in self.servers:
            _signal_group(server.pid, signal.SIGKILL)

    def start_model_server(
        self,
        name: str = "model-server",
        *,
        model: str = "random:lab",
        slots: int = 1,
        served_name: str = "lab",
        extra: Sequence[str] = (),
        ready_seconds: float = 180.0,
    ) -> ServerProcess:
        """Start `punctual-model-server` on a free port with one compute thread."""
        port = find_free_port()
        argv = [
            find_program("punctual-model-server"),
            *("--model", model, "--slots", str(slots), "--served-model-name", served_name),
            *("--host", "127.0.0.1", "--port", str(port), *STOP_AT_ONCE, *extra),
        ]
        return self.launch(
            name,
            argv,
            port=port,
            environment={"OMP_NUM_THREADS": "1"},
            ready_seconds=ready_seconds,
        )

    def start_gateway(
        self,
        policy: Path,
        backends: Sequence[str],
        name: str = "gateway",
        *,
        extra: Sequence[str] = (),
        ready_seconds: float = 60.0,
    ) -> ServerProcess:
        """Start `punctual-gateway` with a policy file in front of the backends, on a free port."""
        port = find_free_port()
        argv = [find_program("punctual-gateway"), "--policy", str(policy)]
        for backend in backends:
            argv += ["--backend", backend]
        argv += ["--host", "127.0.0.1", "--port", str(port), *STOP_AT_ONCE, *extra]
        return self.launch(name, argv, port=port, ready_seconds=ready_seconds)


def find_program(name: str) -> str:
    """Return the path of a console script: beside this Python first, then on PATH.

    Raises ProcessError when there is none.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        msg = f"program {name} is neither beside {sys.executable} nor on PATH; it must be installed"
        raise ProcessError(msg)
    return found


def find_free_port() -> int:
    """Return a TCP port of 127.0.0.1 that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def exit_on_sigterm() -> None:
    """Turn SIGTERM into SystemExit, so that a killed run stops its children like one that ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _answers_ok(host: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=2.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return
