"""A pool of model pods with its policy, as a user applies it, in a namespace of its own."""

from __future__ import annotations

import json
from typing import Any

from charts.tools.generate import ROOT
from e2e.images import with_test_images
from e2e.load import Load
from testcluster.kubectl import Kubectl
from testcluster.waiting import wait_until

SAMPLE = ROOT / "manifests" / "samples" / "quickstart.yaml"
POLICY = "admissionpolicy/quickstart"
GATEWAY = "deployment/quickstart-gateway"
POOL = "deployment/quickstart"
GATEWAY_PODS = "--selector=punctual.dev/policy=quickstart"
POOL_PODS = "--selector=app.kubernetes.io/name=quickstart"
URL = "http://quickstart-gateway"


class Service:
    """The sample service."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl

    def apply(self) -> None:
        """Apply the sample."""
        self.kubectl.apply(with_test_images(SAMPLE.read_text()))

    def wait_ready(self) -> None:
        """Wait until the policy says that its gateway can be used."""
        ready = ("wait", POLICY, "--for=condition=Ready", "--timeout=30s")
        wait_until(lambda: self.kubectl(*ready), "the policy is ready", seconds=120)

    def change(self, spec: dict[str, Any]) -> int:
        """Change the policy; returns the generation of the change."""
        self.kubectl("patch", POLICY, "--type=merge", f"--patch={json.dumps({'spec': spec})}")
        return int(self.kubectl.json("get", POLICY)["metadata"]["generation"])

    def wait_applied(self, generation: int) -> None:
        """Wait until every gateway replica applies this generation."""

        def applied() -> bool:
            status = self.kubectl.json("get", POLICY).get("status", {})
            conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
            return (
                status.get("observedGeneration") == generation
                and conditions.get("PolicyApplied") == "True"
                and conditions.get("Ready") == "True"
            )

        wait_until(applied, f"generation {generation} is applied", seconds=150, every=0.5)

    def wait_rolled_out(self, deployment: str) -> None:
        """Wait until a rolling update has replaced every pod, and the old ones are gone."""
        done = ("rollout", "status", deployment, "--timeout=30s")
        wait_until(lambda: self.kubectl(*done), f"{deployment} is rolled out", seconds=120)

    def scale(self, replicas: int) -> None:
        """Change the number of model pods and wait until so many are ready."""
        self.kubectl("scale", POOL, f"--replicas={replicas}")
        self.wait_rolled_out(POOL)

    def drain(self, node: str) -> None:
        """Close a node to new pods and evict the gateway's replicas from it."""
        selector = "--pod-selector=punctual.dev/policy=quickstart"
        options = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=50s")
        drained = ("drain", node, selector, *options)
        wait_until(lambda: self.kubectl(*drained), f"node {node} is drained", seconds=150)

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """The pods of the pool or of the gateway that are not being deleted, oldest first."""
        found = self.kubectl.json("get", "pods", selector)["items"]
        found.sort(key=lambda pod: pod["metadata"]["creationTimestamp"])
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def identity(self) -> list[str]:
        """The uids of the policy and of the gateway's pods."""
        found = [self.kubectl.json("get", POLICY), *self.pods(GATEWAY_PODS)]
        return [str(one["metadata"]["uid"]) for one in found]

    def load(self, seconds: float, rate: float, *options: str) -> Load:
        """Start open-loop load on the gateway's Service."""
        return Load(self.kubectl, URL, seconds, rate, *options)

    def load_elsewhere(self, node: str, seconds: float, rate: float, *options: str) -> Load:
        """The same, on any other node than this one."""
        return Load(self.kubectl, URL, seconds, rate, *options, avoid=node)

    def ask(self, path: str) -> Any:
        """What the gateway answers to a GET through the API server's proxy."""
        return json.loads(self.kubectl("get", "--raw", f"{self._proxy}{path}"))

    def complete(self, prompt: str, max_tokens: int) -> Any:
        """The gateway's answer to a completion request through the API server's proxy."""
        body = json.dumps({"model": "lab", "prompt": prompt, "max_tokens": max_tokens})
        path = f"{self._proxy}/v1/completions"
        return json.loads(self.kubectl("create", "--raw", path, "-f", "-", stdin=body))

    @property
    def _proxy(self) -> str:
        service = "quickstart-gateway:80"
        return f"/api/v1/namespaces/{self.kubectl.namespace}/services/{service}/proxy"
