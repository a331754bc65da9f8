"""Open-loop load from a pod in the cluster, and what became of each request."""

from __future__ import annotations

import dataclasses
import json
import shlex
import uuid
from collections import Counter
from typing import Any

from e2e.images import image
from testcluster.kubectl import Kubectl
from testcluster.waiting import wait_until

FOLDER = "/tmp"  # noqa: S108  # the container's own
MARK = "every request has ended"
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Outcomes:
    """The rows of a run."""

    rows: list[Row]

    @property
    def counts(self) -> Counter[str]:
        """How many requests ended in which way."""
        return Counter(str(row["outcome"]) for row in self.rows)

    def of(self, outcome: str) -> list[Row]:
        """The rows that ended so."""
        return [row for row in self.rows if row["outcome"] == outcome]

    def assert_promises_kept(self) -> None:
        """What was begun was finished in time; who was turned away was so by overload alone.

        On a machine that is busy with other things a refusal is the right answer; a connection
        that breaks, a late answer, or a client sent away because something stopped never is.
        """
        lost = ("failed", "late", "expired", "cancelled")
        assert set(self.counts) <= {"good", "refused"}, self.describe(*lost)
        codes = {str(row["refusal_code"]) for row in self.of("refused")}
        assert codes <= {"deadline_unreachable"}, self.describe("refused")
        assert self.counts["good"] > self.counts["refused"], self.describe("refused")

    def describe(self, *outcomes: str) -> str:
        """The counts, and the first rows of these outcomes, for a failed assertion."""
        shown = [row for outcome in outcomes for row in self.of(outcome)][:5]
        keep = ("sent_at", "outcome", "status", "attempts", "latency_ms", "refusal_code", "error")
        return "\n".join([str(dict(self.counts)), *(str({k: r[k] for k in keep}) for r in shown)])


class Load:
    """A pod that sends requests at the times of a seeded trace, whatever becomes of the others."""

    def __init__(
        self,
        kubectl: Kubectl,
        url: str,
        seconds: float,
        rate: float,
        *options: str,
        avoid: str = "",
    ) -> None:
        self._kubectl = kubectl
        self.seconds = seconds
        self.name = f"load-{uuid.uuid4().hex[:6]}"
        command = ["punctual-lab", "load", url, "--model=lab", "--rows=/tmp/rows.jsonl"]
        command += [f"--seconds={seconds}", f"--rate={rate}", *options]
        run = f"{shlex.join(command)} >/tmp/log 2>&1 || cat /tmp/log"
        script = f"{run}; cat /tmp/rows.jsonl; echo {MARK}"
        pod = load_pod(self.name, script, avoid)
        kubectl.apply(pod)
        wait_until(lambda: self._started(pod), f"pod/{self.name} has started", seconds=90)

    def wait(self) -> Outcomes:
        """Wait until every request has ended; raises AssertionError when the pod breaks."""
        wait_until(
            lambda: self._phase() in {"Succeeded", "Failed"},
            f"pod/{self.name} has ended",
            seconds=self.seconds + 120,
            every=1,
        )
        lines = self._kubectl("logs", self.name).splitlines()
        assert lines[-1:] == [MARK], "\n".join(lines[-30:])
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        assert rows, "\n".join(lines)
        return Outcomes(rows)

    def _started(self, pod: dict[str, Any]) -> bool:
        """Whether it runs; one that the node could not start is made again."""
        status = self._kubectl.json("get", "pod", self.name)["status"]
        if "StartError" in json.dumps(status.get("containerStatuses", ())):
            self._kubectl("delete", "pod", self.name)
            self._kubectl.apply(pod)
            return False
        return bool(status.get("phase") != "Pending")

    def _phase(self) -> str:
        return str(self._kubectl.json("get", "pod", self.name)["status"].get("phase"))


def load_pod(name: str, script: str, avoid: str) -> dict[str, Any]:
    """A restricted pod that runs a shell script in the laboratory's image."""
    container = {
        "name": "load",
        "image": image("lab"),
        "command": ["sh", "-c", script],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": FOLDER}],
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if avoid:
        match = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [avoid]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        }
    metadata = {"name": name, "labels": {"app.kubernetes.io/name": "load"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
