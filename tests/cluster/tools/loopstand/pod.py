"""What is behind a pod of the test: a process, or a virtual model pod."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from loopstand.fleet import Fleet, VirtualPod

PROBE_SECONDS = 1.0


class Work(Protocol):
    """What runs in a pod."""

    port: int

    def tend(self) -> None:
        """Start it again if it has ended by itself, as a kubelet does."""

    def stop(self) -> None:
        """Ask it to end; returns at once."""

    def kill(self) -> None:
        """End it without ceremony."""

    @property
    def ended(self) -> bool:
        """Whether it has."""


Runner = Callable[[dict[str, Any], str], Work]
"""`runner(pod, address)` starts what is to listen there."""


class Program:
    """A process."""

    def __init__(
        self, command: tuple[str, ...], environment: dict[str, str], log: Path, port: int
    ) -> None:
        self.port, self._command, self._log = port, command, log
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        self._stopping = False
        self.process = self._start()

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def tend(self) -> None:
        """Start it again if it has ended by itself."""
        if self.ended and not self._stopping:
            self.process = self._start()

    def stop(self) -> None:
        """Send SIGTERM."""
        self._stopping = True
        if not self.ended:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, and wait."""
        self._stopping = True
        self.process.kill()
        self.process.wait(10)

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)


class Virtual:
    """A virtual model pod."""

    port = 8000

    def __init__(self, fleet: Fleet, address: str, delay: float) -> None:
        self._fleet = fleet
        self._pod: VirtualPod = fleet.start(address, delay)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._pod.ended

    def tend(self) -> None:
        """It never ends by itself."""

    def fail(self) -> None:
        """Make it unready for good."""
        self._pod.fail()

    def stop(self) -> None:
        """Let it finish what runs."""
        self._fleet.drain(self._pod)

    def kill(self) -> None:
        """End it at once."""
        self._fleet.kill(self._pod)


@dataclass(slots=True)
class RunningPod:
    """A pod, what runs in it, and what was told of it."""

    name: str
    kind: str
    address: str
    work: Work
    bound: bool
    """Whether it is on a node."""
    begun: float
    ready: bool = False
    told: bool | None = None
    """The readiness that Kubernetes was told."""
    ready_after: float | None = None
    """Seconds from the start to the first time that it was ready."""
    stopping: bool = False
    _probed: float = 0.0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.address}:{self.work.port}"

    def look(self, now: float, every: float) -> None:
        """Keep it running; ask whether it is ready, if it is time to."""
        if not self.stopping and self.work.ended:
            self.work.tend()
            self.ready = False
        if self.ready and not self.stopping and now - self._probed < every:
            return
        self._probed = now
        self.ready = not self.stopping and _answers(f"{self.url}/readyz")
        if self.ready and self.ready_after is None:
            self.ready_after = time.monotonic() - self.begun

    def stop(self) -> None:
        """Ask it to end."""
        self.stopping = True
        self.work.stop()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=PROBE_SECONDS) as answer:  # noqa: S310  # loopback
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
