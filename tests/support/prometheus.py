"""A real Prometheus that scrapes what a test runs, and questions to it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import yaml

from charts.tools.prometheus import prometheus_program
from support.model_server import wait_until

START_SECONDS = 30.0
SELECTOR = re.compile(r"\b(punctual_(?!dev_policy\b)\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|on) \(([^)]*)\)")
ALTERNATIVES = re.compile(r"[\w |]+")

Sample = dict[str, Any]


class Prometheus:
    """The HTTP API of one Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer; raises AssertionError with what Prometheus says."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310
                return json.load(answer)["data"]
        except HTTPError as error:
            with error:
                raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def query(self, expression: str) -> list[Sample]:
        """The vector that an expression gives now."""
        found: list[Sample] = self.get("query", query=expression)["result"]
        return found

    def wait_for(self, expression: str, seconds: float = 30.0) -> list[Sample]:
        """The same once it is not empty; raises AssertionError when it stays so."""
        found: list[Sample] = []

        def look() -> bool:
            found[:] = self.query(expression)
            return bool(found)

        try:
            wait_until(look, seconds)
        except AssertionError:
            raise AssertionError(f"no data for {expression}") from None
        return found

    def missing(self, expression: str) -> list[str]:
        """What an expression names that there is not: metrics, label values, labels."""
        names = {name for name, _ in SELECTOR.findall(expression)}
        absent = [f"no metric {name}" for name in sorted(names) if not self.query(name)]
        for name, matchers in SELECTOR.findall(expression):
            absent += self._missing_values(name, matchers)
        labels = {
            label.strip() for group in GROUPING.findall(expression) for label in group.split(",")
        }
        for label in sorted(labels):
            if not any(self.query(f'{name}{{{label}!=""}}') for name in names):
                absent.append(f"no label {label} on any of {', '.join(sorted(names))}")
        return absent

    def _missing_values(self, name: str, matchers: str) -> Iterator[str]:
        for label, _, value in MATCHER.findall(matchers):
            if not ALTERNATIVES.fullmatch(value):
                continue  # a real pattern: data has to show that it fits
            for alternative in value.split("|"):
                if not self.query(f'{name}{{{label}="{alternative}"}}'):
                    yield f"no {name} with {label}={alternative!r}"


@contextmanager
def prometheus(folder: Path, configuration: dict[str, Any]) -> Iterator[Prometheus]:
    """Run one until the block ends."""
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(configuration))
    port = _free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(prometheus_program("prometheus")),
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdout=log,
            stderr=log,
        )
        server = Prometheus(f"http://127.0.0.1:{port}")
        try:
            wait_until(lambda: _is_ready(server, process), START_SECONDS)
            yield server
        finally:
            process.terminate()
            process.wait(20)


def _is_ready(server: Prometheus, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "prometheus ended: see its log"
    with urllib.request.urlopen(f"{server.url}/-/ready", timeout=5) as answer:  # noqa: S310
        return bool(answer.status == 200)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
