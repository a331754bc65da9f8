"""A gateway under load, the operator's and the adapter's metrics, and a Prometheus in front.

Prometheus gives their series the labels that `manifests/monitoring/scrape.yaml` takes from pods.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server

from charts.tools.generate import ROOT
from charts.tools.prometheus import PrometheusError, prometheus_program
from punctual_operator.adapter.metrics import AdapterMetrics
from punctual_operator.adapter.registration import Owner
from punctual_operator.metrics import Metrics
from support.model_server import model_server
from support.prometheus import Prometheus, prometheus

SERVER = (
    "--engine", "sim", "--model", "random:lab", "--served-model-name", "lab", "--slots", "2",
    "--sim-step-ms", "10", "--sim-noise", "0.1",
)  # fmt: skip
POLICY = {
    "apiVersion": "punctual.dev/v1alpha1",
    "kind": "AdmissionPolicy",
    "metadata": {"name": "gpt2", "namespace": "prod", "generation": 1},
    "spec": {
        "model": "lab",
        "deadline": {"defaultMilliseconds": 600},
        "estimate": {"outputLength": "Learned"},
        "tiers": [{"name": "interactive", "reservedPercent": 10}],
    },
}
CLIENTS = 6
LEAVING = 0.1
"""Share of the clients that do not wait for their answer."""
NOBODY = "http://127.0.0.1:9"
"""A pod that does not answer: nothing listens at the discard port."""
LABELS = {"namespace": "prod", "punctual_dev_policy": "gpt2", "pod": "gpt2-gateway-0"}
OPERATED = {"namespace": "punctual-system", "pod": "punctual-0"}
LISTENING = re.compile(r"listening on http://\S+?:(\d+)")


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus with data of everything; its load ends with the module, for others' sake."""
    try:
        prometheus_program("prometheus")
    except PrometheusError as error:
        pytest.fail(str(error), pytrace=False)
    folder = tmp_path_factory.mktemp("monitored")
    with model_server(folder, *SERVER) as server:
        server.wait_ready()
        with (
            _gateway(folder, server.url) as port,
            _load(port),
            _served(_operator()) as operator,
            _served(_adapter()) as adapter,
            prometheus(folder, _configuration(port, operator, adapter)) as found,
        ):
            yield found


def _configuration(gateway: int, operator: int, adapter: int) -> dict[str, Any]:
    jobs = (("gateway", gateway, LABELS), ("operator", operator, OPERATED))
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "manifests" / "monitoring" / "alerts.yaml")],
        "scrape_configs": [
            {
                "job_name": name,
                "honor_labels": name == "operator",
                "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}],
            }
            for name, port, labels in (*jobs, ("adapter", adapter, OPERATED))
        ],
    }


@contextmanager
def _gateway(folder: Path, backend: str) -> Iterator[int]:
    """The program as a child process, in front of one pod that works and one that does not."""
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(POLICY))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "punctual_gateway", "--policy", str(path), "--port", "0"),
            *("--backend", backend, "--backend", NOBODY, "--peer", NOBODY),
            *("--load-window-seconds", "3"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        yield _port_of(process.stderr)
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()


def _port_of(log: IO[str]) -> int:
    said = []
    for line in log:
        said.append(line)
        if (found := LISTENING.search(line)) is not None:
            threading.Thread(target=log.read, daemon=True).start()
            return int(found[1])
    raise AssertionError("the gateway ended:\n" + "".join(said))


@contextmanager
def _load(port: int) -> Iterator[None]:
    """Clients that ask for more than the pod can do, and now and then for the impossible."""
    stop = threading.Event()
    clients = [
        threading.Thread(target=_ask_until, args=(stop, port, number)) for number in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        stop.set()
        for client in clients:
            client.join(10)


def _ask_until(stop: threading.Event, port: int, number: int) -> None:
    chance = random.Random(number)
    while not stop.is_set():
        deadline = chance.choice((20, 300, 600))
        body = {"model": "lab", "prompt": "Hello", "max_tokens": chance.choice((4, 16, 16, -1))}
        headers = {"X-Deadline-Ms": str(deadline)}
        if number % 2:
            headers["X-Punctual-Tier"] = "interactive"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            if chance.random() < LEAVING:
                stop.wait(0.02)
            else:
                connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            stop.wait(0.1)
        finally:
            connection.close()
        stop.wait(chance.uniform(0.01, 0.05))


def _operator() -> CollectorRegistry:
    """What an operator with a policy that is in trouble exports."""
    metrics = Metrics()
    conditions = (
        ("BackendsDiscovered", "True", "Discovered"),
        ("Ready", "Unknown", "Asking"),
        ("ObjectiveAttainable", "False", "ModelTooSlow"),
        ("AutoscalingActive", "False", "NotConfigured"),
    )
    status = [dict(zip(("type", "status", "reason"), one, strict=True)) for one in conditions]
    policy = {"metadata": POLICY["metadata"], "status": {"conditions": status}}
    metrics.watch_policies(lambda: [policy])
    return metrics.registry


def _adapter() -> CollectorRegistry:
    """What an adapter exports that had its registration and could not answer a read."""
    metrics = AdapterMetrics()
    for owner in Owner:
        metrics.owner.labels(owner.value).set(owner is Owner.US)
    metrics.answers.labels(503).inc()
    return metrics.registry


@contextmanager
def _served(registry: CollectorRegistry) -> Iterator[int]:
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
