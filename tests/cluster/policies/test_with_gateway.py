"""The gateway's own program, started as the operator's Deployment says, on a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from operatorstand.kubelet import Kubelet, next_address
from operatorstand.objects import policy, service, wait_children, wait_reason
from operatorstand.process import OperatorProcess
from testcluster.cluster import Cluster
from testcluster.kubectl import Kubectl
from testcluster.waiting import wait_until

NAME = "gpt2-gateway"


class GatewayPod:
    """A gateway in place of a pod: same arguments, same account, same file."""

    def __init__(self, cluster: Cluster, kubectl: Kubectl, folder: Path) -> None:
        self.address = next_address()
        self._kubectl = kubectl
        self._file = folder / "policy.yaml"
        self.log = folder / "gateway.log"
        self.mount()
        container = kubectl.json("get", "deployment", NAME)["spec"]["template"]["spec"]
        given = container["containers"][0]["args"]
        replaced = {"--policy": str(self._file), "--host": self.address}
        names = [argument.partition("=")[0] for argument in given]
        arguments = [
            f"{name}={replaced[name]}" if name in replaced else argument
            for name, argument in zip(names, given, strict=True)
        ]
        environment = {
            **os.environ,
            "POD_NAMESPACE": kubectl.namespace,
            "KUBECONFIG": str(cluster.account_kubeconfig(kubectl.namespace, NAME)),
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "punctual_gateway", *arguments],
                env=environment,
                stdout=log,
                stderr=log,
            )

    def mount(self) -> None:
        """Bring the file to what the ConfigMap holds, as a kubelet does by and by."""
        text = self._kubectl.json("get", "configmap", NAME)["data"]["policy.yaml"]
        fresh = self._file.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self._file)

    def ask(self, path: str, body: dict[str, object] | None = None) -> tuple[int, str]:
        """The status and text of an answer; status 0 where there is none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}:8080{path}", data=data)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310  # loopback
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""


@pytest.fixture
def gateway(
    operator: OperatorProcess, installed: Cluster, own_kubectl: Kubectl, tmp_path: Path
) -> Iterator[GatewayPod]:
    """The gateway of policy `gpt2` on a Service without pods."""
    own_kubectl.apply([service(), policy()])
    wait_children(own_kubectl)
    pod = GatewayPod(installed, own_kubectl, tmp_path)
    yield pod
    pod.process.kill()
    pod.process.wait(10)


def test_gateway_is_ready_reports_its_generation_and_takes_a_new_one(
    gateway: GatewayPod, own_kubectl: Kubectl, kubelet: Kubelet
) -> None:
    wait_until(lambda: gateway.ask("/readyz")[0] == 200, "the gateway is ready")
    ready = [{"type": "Ready", "status": "True"}]
    pod = kubelet.gateway_pod()
    kubelet.set_status(pod, phase="Running", podIP=gateway.address, conditions=ready)
    wait_reason(own_kubectl, "PolicyApplied", "Applied")
    before = own_kubectl.json("get", "deployment", NAME)["metadata"]["generation"]
    change = {"spec": {"deadline": {"defaultMilliseconds": 777}}}
    own_kubectl("patch", "ap", "gpt2", "--type=merge", "-p", json.dumps(change))
    wait_reason(own_kubectl, "PolicyApplied", "Pending")
    gateway.mount()
    wait_reason(own_kubectl, "PolicyApplied", "Applied")
    shown = json.loads(gateway.ask("/stats")[1])["policy"]
    assert (shown["generation"], shown["default_deadline_ms"]) == (2, 777)
    assert own_kubectl.json("get", "deployment", NAME)["metadata"]["generation"] == before


def test_gateway_without_pods_refuses_and_says_why(
    gateway: GatewayPod, own_kubectl: Kubectl
) -> None:
    wait_until(lambda: gateway.ask("/readyz")[0] == 200, "the gateway is ready")
    body: dict[str, object] = {"model": "gpt2", "prompt": "Hello", "max_tokens": 4}
    status, text = gateway.ask("/v1/completions", body)
    assert (status, json.loads(text)["error"]["code"]) == (503, "pool_exhausted")


def test_gateway_serves_on_while_operator_and_api_server_are_away(
    gateway: GatewayPod, operator: OperatorProcess, installed: Cluster
) -> None:
    wait_until(lambda: gateway.ask("/readyz")[0] == 200, "the gateway is ready")
    plane = installed.control_plane
    assert plane is not None
    plane.stop_api_server()
    try:
        wait_until(
            lambda: "following the pods failed" in gateway.log.read_text(),
            "the gateway has lost the API server",
        )
        assert gateway.ask("/readyz")[0] == 200
        assert gateway.ask("/healthz")[0] == 200
    finally:
        plane.start_api_server()
