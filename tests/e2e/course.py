"""The number of pods of a Deployment over time, looked at in the background."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from testcluster.kubectl import Kubectl, KubectlError

EVERY = 2.0


@dataclass(frozen=True, slots=True)
class Look:
    """One look: monotonic seconds, the count that is set, the pods that there are and are ready."""

    at: float
    replicas: int
    pods: int
    ready: int


class Course:
    """Looks at a Deployment every two seconds until it is closed."""

    def __init__(self, kubectl: Kubectl, deployment: str) -> None:
        self.looks: list[Look] = []
        self._kubectl, self._deployment = kubectl, deployment
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join(90)

    def counts(self, begin: float, end: float) -> list[int]:
        """The counts that were set in a span of monotonic time, in their order."""
        return [count for _, count in self._steps(begin, end)]

    def most_pods(self, begin: float, end: float) -> int:
        """Most pods at once, those of a rolling update included."""
        return max(look.pods for look in self.looks if begin <= look.at < end)

    def describe(self, begin: float) -> str:
        """When which count was set, in seconds since `begin`, and when so many were ready."""
        told = [f"{at - begin:.0f} s {count}" for at, count in self._steps(0, float("inf"))]
        ready: list[str] = []
        last = -1
        for look in self.looks:
            if look.ready != last:
                last = look.ready
                ready.append(f"{look.at - begin:.0f} s {last}")
        return f"pods set: {', '.join(told)}\nready: {', '.join(ready)}"

    def _steps(self, begin: float, end: float) -> list[tuple[float, int]]:
        found: list[tuple[float, int]] = []
        for look in self.looks:
            if begin <= look.at < end and (not found or found[-1][1] != look.replicas):
                found.append((look.at, look.replicas))
        return found

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            try:
                found = self._kubectl.json("get", self._deployment)
            except KubectlError:  # the API server is busy: the next look tells
                continue
            status = found.get("status", {})
            now = status.get("replicas", 0), status.get("readyReplicas", 0)
            self.looks.append(Look(time.monotonic(), found["spec"]["replicas"], *now))
