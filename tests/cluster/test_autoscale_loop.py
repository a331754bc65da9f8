"""The whole loop: requests, gateway, adapter, API server, the real autoscaler, model pods.

Everything is the product's own or Kubernetes' own, but for the kubelet: the test starts a model
server for each Pod object. Accelerated: windows of 20 s in place of 60, pods that start in 10 s, an
autoscaler that looks every 2 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from adapterstand import AdapterProcess, install
from gateway_stand.stand import Stand, policy_object, running
from operatorstand.objects import policy
from punctual_operator.policies import parse
from punctual_operator.resources.scaling import build_pool_scaler
from support.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from testcluster.cluster import Cluster
    from testcluster.kubectl import Kubectl

POD_START = 10
TOKENS, STEP_MS = 25, 20
SERVICE = TOKENS * STEP_MS / 1000
CALM, BUSY = 0.6, 4.8
"""Pods of work."""
CALM_SECONDS = 30.0
BUSY_SECONDS = POD_START + 90.0
QUIET_SECONDS = 30.0
SCALING = {
    "targetName": "pool",
    "minimumReplicas": 1,
    "maximumReplicas": 12,
    "scaleDownStabilisationSeconds": 60,
}


class Pool:
    """Starts a model server for each pod of the Deployment, and tells the gateway where it is."""

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        self._kubectl, self._folder = kubectl, folder
        self._servers: dict[str, ModelServer] = {}
        self._logs: list[Any] = []
        self.counts: list[tuple[float, int]] = []
        """When there were how many pods."""

    async def watch(self) -> AsyncIterator[frozenset[str]]:
        """The URLs of the pods that there are, whenever they change."""
        known: set[str] | None = None
        while True:
            names = await asyncio.to_thread(self._names)
            for name in sorted(names - self._servers.keys()):
                self._servers[name] = await asyncio.to_thread(self._start, name)
            if names != known:
                known = names
                self.counts.append((time.monotonic(), len(names)))
                yield frozenset(self._servers[name].url for name in names)
            await asyncio.sleep(0.5)

    def close(self) -> None:
        """Stop all servers, those of pods that have gone too."""
        for server in self._servers.values():
            server.stop()
        for log in self._logs:
            log.close()

    def changes(self, since: float) -> int:
        """How often the number of pods changed since then."""
        return sum(at >= since for at, _ in self.counts)

    def _names(self) -> set[str]:
        pods = self._kubectl.json("get", "pods", "-l", "app=pool")["items"]
        return {
            pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]
        }

    def _start(self, name: str) -> ModelServer:
        log = (self._folder / f"{name}.log").open("wb")
        self._logs.append(log)
        arguments = (
            "--engine=sim", "--slots=1", "--served-model-name=lab", f"--sim-step-ms={STEP_MS}",
            f"--start-delay-seconds={POD_START}", "--log-level=warning",
        )  # fmt: skip
        return ModelServer(arguments, log)


@dataclass
class Load:
    """Open-loop requests of one size."""

    stand: Stand
    rows: list[tuple[float, int]] = field(default_factory=list)
    """When each left, and its status."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def run(self, load: float, seconds: float, seed: int) -> None:
        """Send so many pods of work for so long, whatever becomes of it."""
        rng, end = random.Random(seed), time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            task = asyncio.create_task(self._ask(now))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(rng.expovariate(load / SERVICE))

    async def settle(self) -> None:
        """Wait for all answers."""
        await asyncio.gather(*self._tasks)

    def refused(self, begin: float, end: float) -> float:
        """Share of the requests that left in between and were refused."""
        statuses = [status for at, status in self.rows if begin <= at < end]
        return statuses.count(503) / len(statuses)

    async def _ask(self, at: float) -> None:
        async with self.stand.complete(TOKENS, ignore_eos=True) as response:
            await response.read()
            self.rows.append((at, response.status))


def pool(kubectl: Kubectl) -> dict[str, Any]:
    labels = {"app": "pool"}
    containers = [{"name": "model", "image": "example.invalid/model:1"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "pool", "namespace": kubectl.namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


def gateway_pod() -> tuple[dict[str, Any], dict[str, Any]]:
    """The Pod object that stands for the gateway in this process, and its status."""
    labels = {"app.kubernetes.io/managed-by": "punctual-operator", "punctual.dev/policy": "tested"}
    containers = [{"name": "gateway", "image": "example.invalid/gateway:1"}]
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gateway", "labels": labels}}
    pod = {**head, "spec": {"containers": containers}}
    ready = [{"type": "Ready", "status": "True"}]
    address = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    return pod, {**pod, "status": {"phase": "Running", "conditions": ready, **address}}


def apply_all(kubectl: Kubectl) -> None:
    kubectl.apply([policy("tested", model="lab", autoscaling=SCALING), pool(kubectl)])
    found = parse(kubectl.json("get", "admissionpolicy", "tested"))
    assert found.autoscaling is not None
    scaler = build_pool_scaler(found, found.autoscaling)
    del scaler["metadata"]["ownerReferences"]
    pod, status = gateway_pod()
    kubectl.apply([scaler, pod])
    kubectl.apply(status, "--subresource=status", "--field-manager=kubelet")


async def until(true: Callable[[], bool], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110  # a state that comes by itself, without an event
            await asyncio.sleep(0.5)


@pytest.mark.slow
@pytest.mark.timeout(420)
async def test_step_of_the_load_is_caught_up_within_a_pod_start_and_ninety_seconds(
    own_cluster: Cluster, own_namespace: str, tmp_path: Path
) -> None:
    """From 0.6 to 4.8 pods of work and to nothing, with hardly a change of the count in between."""
    kubectl = own_cluster.kubectl(own_namespace)
    install(own_cluster)
    await asyncio.to_thread(apply_all, kubectl)
    models, adapter = Pool(kubectl, tmp_path), AdapterProcess(own_cluster, tmp_path)
    written = policy_object(2, deadline={"defaultMilliseconds": 4000})
    written["metadata"]["namespace"] = own_namespace
    with contextlib.closing(models):
        async with running(tmp_path, [], models, {"load_window": 20}) as stand:
            stand.write_policy(written)
            await until(lambda: stand.gateway.loaded.generation == 2, 10)
            await until(lambda: bool(stand.gateway.scheduler.ledger.pods), 60)
            await asyncio.to_thread(adapter.start, f"--gateway-port={stand.port}")
            try:
                await asyncio.to_thread(adapter.wait_registered)
                load = Load(stand)
                await load.run(CALM, CALM_SECONDS, 1)
                begun = time.monotonic()
                await load.run(BUSY, BUSY_SECONDS, 2)
                ended = time.monotonic()
                await load.settle()
                print("pods", [(round(at - begun, 1), count) for at, count in models.counts])
                shares = [
                    round(load.refused(begun + at, begun + at + 10), 3)
                    for at in range(0, int(BUSY_SECONDS), 10)
                ]
                print("refused in each ten seconds after the step", shares)
                assert {status for _, status in load.rows} <= {200, 503}
                assert load.refused(ended - QUIET_SECONDS, ended) < 0.01
                assert models.changes(ended - QUIET_SECONDS) <= 1
                assert 6 <= max(count for _, count in models.counts) <= 10
                await until(lambda: models.counts[-1][1] == 1, 180)
            finally:
                await asyncio.to_thread(adapter.stop)
                await asyncio.to_thread(adapter.unregister)
