"""Plays the kubelet of one namespace: a process for each pod, and what becomes of it told."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any

from kubernetes.client import ApiException

from loopstand.api import Api
from loopstand.network import next_address, pod_address
from loopstand.node import Node
from loopstand.pod import Runner, RunningPod

LOOK_SECONDS = 0.25
PROBE_EVERY = 2.0


class Kubelet:
    """Runs the pods of a namespace; `runners` by the value of a pod's label `app`, and "gateway".

    Pods that are bound to the node are deleted when they have ended, as a kubelet does; of others
    (the gateway's, which no scheduler can bind here) Kubernetes deletes the object at once.
    """

    def __init__(self, api: Api, node: Node, namespace: str, runners: Mapping[str, Runner]) -> None:
        self.pods: dict[str, RunningPod] = {}
        self.gone: list[RunningPod] = []
        self.problems: list[str] = []
        self._api, self._node, self._runners = api, node, runners
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def of(self, kind: str) -> list[RunningPod]:
        """The pods of this kind that there are."""
        return [pod for pod in list(self.pods.values()) if pod.kind == kind]

    def urls(self, kind: str) -> list[str]:
        """Where the ready ones listen."""
        return [pod.url for pod in self.of(kind) if pod.ready and not pod.stopping]

    def start_seconds(self, kind: str) -> float:
        """The longest that a pod of this kind took until it was ready."""
        ever = [pod for pod in [*self.pods.values(), *self.gone] if pod.kind == kind]
        return max((pod.ready_after for pod in ever if pod.ready_after is not None), default=0.0)

    def close(self) -> None:
        """Kill all that runs, and let the pods' objects go."""
        self._ended.set()
        self._thread.join(30)
        for pod in [*self.pods.values(), *self.gone]:
            pod.work.kill()
            if pod.bound:
                self._api.delete(f"{self._path}/{pod.name}")

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  # told to the test, which looks at the end
                self.problems.append(repr(error))

    def _look(self) -> None:
        now = time.monotonic()
        self._node.beat(now)
        found = {pod["metadata"]["name"]: pod for pod in self._api.get(self._path)["items"]}
        for name, pod in found.items():
            if name not in self.pods:
                self._take(name, pod)
        for name, running in list(self.pods.items()):
            self._tend(running, found.get(name), now)

    def _take(self, name: str, pod: dict[str, Any]) -> None:
        labels = pod["metadata"].get("labels", {})
        kind = labels.get("app") or ("gateway" if "punctual.dev/policy" in labels else "")
        if kind not in self._runners or "deletionTimestamp" in pod["metadata"]:
            return
        address, begun = next_address(), time.monotonic()
        work, bound = self._runners[kind](pod, address), bool(pod["spec"].get("nodeName"))
        self.pods[name] = RunningPod(name, kind, address, work, bound, begun)

    def _tend(self, running: RunningPod, pod: dict[str, Any] | None, now: float) -> None:
        terminating = pod is None or "deletionTimestamp" in pod["metadata"]
        if terminating and not running.stopping:
            running.stop()
        if terminating and running.work.ended:
            if pod is not None:
                self._api.delete(f"{self._path}/{running.name}")
            self.gone.append(self.pods.pop(running.name))
            return
        running.look(now, PROBE_EVERY)
        if pod is not None and running.told is not running.ready:
            self._tell(running)

    def _tell(self, running: RunningPod) -> None:
        address = pod_address(running.address) if running.bound else running.address
        value = "True" if running.ready else "False"
        conditions = [{"type": kind, "status": value} for kind in ("Ready", "ContainersReady")]
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        with contextlib.suppress(ApiException):  # it has gone since
            self._api.patch(
                f"{self._path}/{running.name}/status",
                {"status": status | {"conditions": conditions}},
            )
            running.told = running.ready
