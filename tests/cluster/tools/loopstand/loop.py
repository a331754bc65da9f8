"""Requests, gateway, adapter, autoscaler, model pods: all real but for kubelet and clock."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapterstand import AdapterProcess, install
from loopstand.api import Api
from loopstand.clock import LOAD_WINDOW, accelerate, quick, usual
from loopstand.fleet import Fleet
from loopstand.kubelet import Kubelet
from loopstand.load import DEADLINE_MS, Load
from loopstand.node import Node
from loopstand.pod import Program, Virtual, Work
from loopstand.record import Recorder, replay, steps
from operatorstand.objects import policy, service, wait_reason
from operatorstand.process import OperatorProcess
from testcluster.cluster import Cluster
from testcluster.kubectl import Kubectl

NAME = "gpt2"
GATEWAY = f"{NAME}-gateway"
SCALER = f"{NAME}-pool"
POOL = "pool"
MOST = 12
POD_START = 60.0
"""Seconds that a model pod takes to be ready, on the usual clock."""
GATEWAY_PORT = 8080
REPORT_SECONDS = 30
ADAPTER = ("--poll-seconds=0.5", f"--hold-seconds={quick(120):g}")


@dataclass(slots=True)
class Loop:
    """What several scenarios share: the control plane, a node, the adapter."""

    cluster: Cluster
    api: Api
    node: Node
    adapter: AdapterProcess
    fleet: Fleet
    folder: Path

    @asynccontextmanager
    async def scenario(
        self, namespace: str, *, pods: int = 1, pod_start: float = POD_START, **autoscaling: Any
    ) -> AsyncIterator[Stand]:
        """A policy with its gateway and pool, whose autoscaler works on the shortened clock.

        `pods` are there at the beginning; `pod_start` is in seconds of the usual clock, and so is
        what `autoscaling` says.
        """
        folder = self.folder / namespace
        folder.mkdir()
        scaling = {"targetName": POOL, "minimumReplicas": 1, "maximumReplicas": MOST} | autoscaling
        objects = [service(), build_policy(scaling), build_pool(self.node.name, pods)]
        stand = await asyncio.to_thread(_build, self, namespace, folder, pod_start, objects)
        try:
            yield stand
            assert not stand.kubelet.problems
            for log in folder.glob("*.log"):
                assert "Traceback" not in log.read_text(), log.read_text()[-4000:]
        finally:
            await stand.load.close()
            await asyncio.to_thread(stand.close)


@contextmanager
def running(cluster: Cluster, folder: Path) -> Iterator[Loop]:
    """The loop without a policy, until the block ends."""
    install(cluster)
    api = Api(cluster.kubeconfig)
    node, fleet = Node(api), Fleet()
    adapter = AdapterProcess(cluster, folder)
    try:
        adapter.start(*ADAPTER)
        adapter.wait_registered()
        yield Loop(cluster, api, node, adapter, fleet, folder)
    finally:
        adapter.stop(kill=True)
        adapter.unregister()
        fleet.close()
        node.remove()
        api.close()


@dataclass(slots=True)
class Stand:
    """One scenario."""

    loop: Loop
    kubectl: Kubectl
    kubelet: Kubelet
    recorder: Recorder
    load: Load

    @property
    def pod_start(self) -> float:
        """The longest that a model pod of this scenario took to be ready, in seconds."""
        return self.kubelet.start_seconds(POOL_LABEL)

    async def until(self, true: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait for what comes by itself; raises AssertionError when the time is over."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"within {seconds:g} s: {what}; {self.recorder.last}"
            await asyncio.sleep(0.1)

    async def play(
        self, *phases: tuple[float | Callable[[float], float], float], seed: int = 1
    ) -> list[float]:
        """Send loads for so many seconds of the usual clock each, and wait for all answers.

        Returns when each phase began and when the last one ended.
        """
        times = [time.monotonic()]
        for number, (load, seconds) in enumerate(phases):
            await self.load.run(load, quick(seconds), 100 * seed + number)
            times.append(time.monotonic())
        await self.load.settle()
        return times

    async def roll_out(self, deployment: str) -> None:
        """Replace the pods of a Deployment one after the other, and wait until all are new."""
        name = f"deployment/{deployment}"
        for words in (("restart", name), ("status", name, "--timeout=55s")):
            await asyncio.to_thread(self.kubectl, "rollout", *words)

    def gateway_process(self) -> Program:
        """The gateway that runs now."""
        work = self.kubelet.of("gateway")[0].work
        assert isinstance(work, Program)
        return work

    def fail_pool(self) -> None:
        """Make all model pods that there are unready for good."""
        for pod in self.kubelet.of(POOL_LABEL):
            assert isinstance(pod.work, Virtual)
            pod.work.fail()

    def describe(self, begun: float) -> str:
        """The course of the scenario in seconds of the usual clock since `begun`."""
        looks = self.recorder.looks
        courses = {
            "pods": steps((one.at, one.replicas) for one in looks),
            "ready": steps((one.at, one.ready) for one in looks),
            "arithmetic": replay(looks, self.recorder.spec),
        }
        lines = [
            f"{name}: {', '.join(f'{usual(at - begun):.0f} s {n}' for at, n in course)}"
            for name, course in courses.items()
        ]
        shares = self.load.shares(begun, quick(REPORT_SECONDS))
        lines.append(f"refused in each {REPORT_SECONDS} s: {shares}")
        return "\n".join([*lines, f"answers: {dict(self.load.all.counts)}"])

    def close(self) -> None:
        """Stop all processes."""
        self.recorder.close()
        self.kubelet.close()


def _build(
    loop: Loop, namespace: str, folder: Path, pod_start: float, objects: list[dict[str, Any]]
) -> Stand:
    """The operator writes all that it writes, sees the autoscaler at work, and is stopped.

    From then on nobody repairs the autoscaler, whose windows are shortened.
    """
    kubectl = loop.cluster.kubectl(namespace)
    kubectl.apply(objects)
    operator = OperatorProcess(loop.cluster, folder)
    operator.start("--attention-seconds=1", f"--namespace={namespace}")
    runners = {
        POOL_LABEL: lambda _, address: Virtual(loop.fleet, address, quick(pod_start)),
        "gateway": _gateway_runner(loop.cluster, kubectl, folder),
    }
    kubelet = Kubelet(loop.api, loop.node, namespace, runners)
    try:
        wait_reason(kubectl, "AutoscalingActive", "Active", NAME, seconds=90)
        wait_reason(kubectl, "Ready", "Serving", NAME, seconds=60)
        operator.stop()
        _shorten(loop.api, namespace)
        recorder = Recorder(loop.api, namespace, SCALER, POOL)
    except BaseException:
        kubelet.close()
        operator.stop(kill=True)
        raise
    return Stand(loop, kubectl, kubelet, recorder, Load(lambda: kubelet.urls("gateway")))


POOL_LABEL = "pods"
"""Value of the label `app` that the Service of the policy selects."""


def build_policy(scaling: dict[str, Any]) -> dict[str, Any]:
    """The policy of a scenario."""
    return policy(
        NAME,
        model="lab",
        deadline={"defaultMilliseconds": DEADLINE_MS, "maximumMilliseconds": 5 * DEADLINE_MS},
        gateway={"acceptSeconds": 1, "finishSeconds": 10},
        autoscaling=scaling,
    )


def build_pool(node: str, pods: int) -> dict[str, Any]:
    """The Deployment of the model pods, all on one node."""
    labels = {"app": POOL_LABEL}
    container = {"name": "model", "image": "example.invalid/model:1"}
    pod = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 20}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": POOL},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _gateway_runner(
    cluster: Cluster, kubectl: Kubectl, folder: Path
) -> Callable[[dict[str, Any], str], Work]:
    """The gateway as the operator's Deployment says, with the rights of its account."""
    kubeconfig: list[Path] = []

    def run(pod: dict[str, Any], address: str) -> Work:
        kubeconfig[:] = kubeconfig or [cluster.account_kubeconfig(kubectl.namespace, GATEWAY)]
        file = folder / f"{pod['metadata']['name']}.yaml"
        file.write_text(kubectl.json("get", "configmap", GATEWAY)["data"]["policy.yaml"])
        replaced = {"--policy": str(file), "--host": address}
        given = [one.partition("=") for one in pod["spec"]["containers"][0]["args"]]
        arguments = [f"{name}{equals}{replaced.get(name, value)}" for name, equals, value in given]
        own = (f"--load-window-seconds={LOAD_WINDOW}",)
        environment = {
            "POD_NAMESPACE": kubectl.namespace,
            "POD_NAME": pod["metadata"]["name"],
            "KUBECONFIG": str(kubeconfig[0]),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        module = (sys.executable, "-m", "loopstand.gateway_program")
        log = file.with_suffix(".log")
        return Program((*module, *arguments, *own), environment, log, GATEWAY_PORT)

    return run


def _shorten(api: Api, namespace: str) -> None:
    path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{SCALER}"
    behaviour = api.get(path)["spec"].get("behavior") or {}
    api.patch(path, {"spec": {"behavior": accelerate(behaviour)}})
