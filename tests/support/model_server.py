"""A model server as its own process, and the loop on a clock that tests move by hand."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError

from punctual_model_server.engine.protocol import Event, Start, Step, Submit
from punctual_model_server.engine.runner import Draw, Shape

START_SECONDS = 100.0


class ModelServer:
    """`punctual-model-server` on a free port of the loopback."""

    def __init__(self, arguments: tuple[str, ...], log: IO[bytes]) -> None:
        self._log = log
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "punctual_model_server.main"),
                *("--host", "127.0.0.1", "--port", "0", *arguments),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        self.url = next((word for word in line.split() if word.startswith("http://")), "")

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.url.rsplit(":", 1)[1])

    @property
    def log_text(self) -> str:
        """What it wrote to stderr so far."""
        self._log.flush()
        return Path(self._log.name).read_text()

    @property
    def engine_pid(self) -> int:
        """The process id of its engine."""
        for child in child_pids(self.process.pid):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
        raise AssertionError("the engine process is not there")

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and JSON body (text for other bodies)."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:  # noqa: S310
                return answer.status, _decoded(answer.read())
        except HTTPError as error:
            with error:
                return error.code, _decoded(error.read())

    def capacity(self) -> dict[str, Any]:
        """Return `GET /v1/capacity`."""
        document: dict[str, Any] = self.get("/v1/capacity")[1]
        return document

    def wait_ready(self) -> ModelServer:
        """Wait until it is calibrated."""
        wait_until(lambda: self.get("/readyz")[0] == 200, START_SECONDS)
        return self

    def wait_idle(self) -> dict[str, Any]:
        """Wait until the engine holds no request; return the capacity document."""
        wait_until(lambda: not any(self.capacity()[k] for k in ("running", "waiting")), 30)
        return self.capacity()

    def stop(self) -> None:
        """End it without ceremony."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def model_server(folder: Path, *arguments: str) -> Iterator[ModelServer]:
    """Run a server; its log goes into `folder`."""
    with (folder / f"server-{time.monotonic_ns()}.log").open("wb") as log:
        server = ModelServer(arguments, log)
        try:
            yield server
        finally:
            server.stop()


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Ask again and again until the condition holds; fail after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if condition():
                return
        except (URLError, OSError):
            pass
        time.sleep(0.01)
    raise AssertionError(f"did not come true within {seconds} seconds")


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until the condition holds, without holding up the event loop of the test."""
    await asyncio.to_thread(wait_until, condition, seconds)


def child_pids(pid: int) -> list[int]:
    """Return the processes that `pid` started and that still run."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def is_alive(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Hold a process still (SIGSTOP) for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if is_alive(pid):
            os.kill(pid, signal.SIGCONT)


class ManualClock:
    """Monotonic seconds that pass only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class CountingRunner:
    """A runner whose tokens count up from the prompt's last id, and whose work takes set times."""

    def __init__(self, clock: ManualClock, slots: int = 2, eos: int = 999) -> None:
        self.shape = Shape(slots, 64, 1000, eos, 8, "test")
        self.clock = clock
        self.prefill_seconds = 3.0
        self.step_seconds = 1.0
        self.next = [0] * slots
        self.batches: list[int] = []
        self.prefilled: list[list[int]] = []
        self.chunks = 1

    def prefill(
        self, row: int, prompt: list[int], draw: Draw, go_on: Callable[[], bool]
    ) -> int | None:
        """Pass the time in chunks."""
        del draw
        for chunk in range(self.chunks):
            if chunk and not go_on():
                return None
            self.clock.sleep(self.prefill_seconds / self.chunks)
        self.prefilled.append(prompt)
        self.next[row] = prompt[-1] + 1
        return self.next[row]

    def step(self, active: int) -> list[int]:
        """Count every row up."""
        self.clock.sleep(self.step_seconds)
        self.batches.append(active)
        for row in range(active):
            self.next[row] += 1
        return self.next[:active]

    def move(self, source: int, target: int) -> None:
        """Carry the counter along."""
        self.next[target] = self.next[source]


def submit(
    rid: int,
    max_tokens: int = 3,
    prompt: list[int] | None = None,
    remaining: float | None = None,
    **changes: Any,
) -> Submit:
    """Return a greedy request."""
    request = Submit(rid, prompt or [rid * 100], max_tokens, 0.0, 1.0, 0, True, remaining, False)
    return request._replace(**changes)


def events_of(steps: list[Step]) -> dict[int, list[Event]]:
    """Return each request's events in order."""
    found: dict[int, list[Event]] = {}
    for step in steps:
        for event in step.events:
            found.setdefault(event.rid, []).append(event)
    return found


def starts_of(steps: list[Step]) -> list[Start]:
    """Return the starts in order."""
    return [step.start for step in steps if step.start is not None]


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()
