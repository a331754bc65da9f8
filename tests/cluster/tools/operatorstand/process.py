"""The operator as its own process, with the rights of its ServiceAccount."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from operatorstand.objects import SYSTEM
from testcluster.cluster import Cluster
from testcluster.process import free_port
from testcluster.waiting import wait_until

ACCOUNT = "punctual-operator"
USER = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"


class OperatorProcess:
    """Starts and ends the operator; its log is in `log`."""

    def __init__(
        self, cluster: Cluster, folder: Path, *, server: str = "", namespace: str = SYSTEM
    ) -> None:
        self.log = folder / "operator.log"
        self._kubeconfig = cluster.account_kubeconfig(namespace, ACCOUNT, server=server)
        self._process: subprocess.Popen[bytes] | None = None
        self.health = f"127.0.0.1:{_two_ports()}"

    def start(self, *arguments: str) -> None:
        """Start it and return when it works."""
        command = [sys.executable, "-m", "punctual_operator", f"--health={self.health}"]
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *arguments], stdout=log, stderr=log, env=environment
            )
        wait_until(self._is_up, "the operator is up")

    def stop(self, *, kill: bool = False) -> int:
        """End it by SIGTERM (or SIGKILL); returns its exit status."""
        process = self._process
        if process is None:
            return 0
        self._process = None
        if process.poll() is None:
            process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            return process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            raise

    @property
    def is_running(self) -> bool:
        """Whether the process that was started still runs."""
        return self._process is not None and self._process.poll() is None

    def peak_memory_mebibytes(self) -> float:
        """Most memory that the process has had."""
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        peak = next(line for line in lines if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024

    def metric(self, name: str) -> float:
        """A metric, by its name with all its labels; 0 where there is none."""
        host, _, port = self.health.rpartition(":")
        lines = _read(f"http://{host}:{int(port) + 1}/metrics")[1].splitlines()
        values = (line.split()[-1] for line in lines if line.startswith(f"{name} "))
        return float(next(values, 0))

    def healthz(self) -> int:
        """The status of `/healthz`, 0 where nothing answers."""
        return _read(f"http://{self.health}/healthz")[0]

    def _is_up(self) -> bool:
        assert self.is_running, self.log.read_text()[-2000:]
        return self.healthz() == 200


StartOperator = Callable[..., OperatorProcess]
"""`start_operator("--resync-seconds=5", server=URL)` starts one that ends with the test."""


def _read(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  # loopback
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def _two_ports() -> int:
    """A free port whose successor is free too."""
    while True:
        port = free_port()
        with socket.socket() as second, contextlib.suppress(OSError):
            second.bind(("127.0.0.1", port + 1))
            return port
