"""The adapter as its own process, with the rights of its ServiceAccount."""

from __future__ import annotations

import http.client
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import yaml

from operatorstand import objects
from testcluster.cluster import Cluster
from testcluster.kubectl import KubectlError
from testcluster.process import free_port
from testcluster.waiting import wait_until

SYSTEM = objects.SYSTEM
ACCOUNT = "punctual-metrics-adapter"
API_SERVICE = "v1beta1.external.metrics.k8s.io"
ROOT = "/apis/external.metrics.k8s.io/v1beta1"
LEFT_OUT = {"Deployment", "Service", "PodDisruptionBudget"}
"""The test runs the process itself, and the Service leads to it."""


def install(cluster: Cluster) -> None:
    """Install the policies' definition, and the adapter's account and rights."""
    objects.install(cluster)
    path = objects.MANIFESTS / "metrics-adapter.yaml"
    rights = [one for one in yaml.safe_load_all(path.read_text()) if one["kind"] not in LEFT_OUT]
    for namespace in (SYSTEM, "kube-system"):
        wanted = [one for one in rights if one["metadata"].get("namespace", SYSTEM) == namespace]
        text = yaml.safe_dump_all(wanted)
        cluster.kubectl(namespace)("apply", "--server-side", "-f", "-", stdin=text)


class AdapterProcess:
    """Starts and ends an adapter that `service` in the system's namespace leads to."""

    def __init__(self, cluster: Cluster, folder: Path, service: str = ACCOUNT) -> None:
        self.log = folder / "adapter.log"
        self.port = free_port()
        self._cluster, self._service = cluster, service
        self._kubeconfig = cluster.account_kubeconfig(SYSTEM, ACCOUNT)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Start it and return when it has asked all gateways."""
        command = [
            sys.executable, "-m", "punctual_operator.adapter", f"--namespace={SYSTEM}",
            f"--service={self._service}", "--host=127.0.0.1", f"--port={self.port}",
            f"--service-port={self.port}", "--poll-seconds=0.5", "--upkeep-seconds=1",
            "--hold-seconds=120", "--log-format=plain",
        ]  # fmt: skip
        environment = {**os.environ, "KUBECONFIG": str(self._kubeconfig), "OMP_NUM_THREADS": "1"}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *arguments], stdout=log, stderr=log, env=environment
            )
        try:
            wait_until(self._is_ready, "the adapter is ready")
        except AssertionError:
            self.stop(kill=True)
            raise

    def stop(self, *, kill: bool = False) -> int:
        """End it; returns its exit status."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            return process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
            raise

    def wait_registered(self) -> None:
        """Lead the API server to this process, and wait until it answers for the group."""
        kubectl = self._cluster.kubectl(SYSTEM)
        spec = {
            "type": "ExternalName",
            "externalName": "localhost",
            "ports": [{"port": self.port}],
        }
        head = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": self._service}}
        kubectl.apply({**head, "spec": spec}, "--force-conflicts")
        wait_until(self._is_served, "the API server asks the adapter", seconds=60)

    def unregister(self) -> None:
        """Free the API group for other tests."""
        kubectl = self._cluster.kubectl(SYSTEM)
        kubectl("delete", "apiservice", API_SERVICE, "--ignore-not-found")
        kubectl("delete", "service", self._service, "--ignore-not-found")

    def metrics(self) -> str:
        """The adapter's own metrics."""
        return self._get("/metrics")[1]

    def wait_rounds(self, count: int) -> None:
        """Wait until so many more rounds of questions have been made."""
        begun = self._rounds()
        wait_until(lambda: self._rounds() >= begun + count, "rounds are made")

    def time_reads(
        self, namespace: str, policies: list[str], rounds: int
    ) -> tuple[list[float], list[float]]:
        """Seconds of reads as the autoscaler makes them, and of `/healthz` in between."""
        pki = self._cluster.control_plane.pki  # type: ignore[union-attr]  # ours has one
        context = _context()
        context.load_cert_chain(pki / "front-proxy-client.crt", pki / "front-proxy-client.key")
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context)
        path = f"{ROOT}/namespaces/{namespace}/punctual_offered_load?labelSelector=policy%3D"
        reads, bare = [], []
        for policy in policies * rounds:
            reads.append(_time(connection, path + policy))
            bare.append(_time(connection, "/healthz"))
        connection.close()
        return reads, bare

    def _rounds(self) -> float:
        lines = self.metrics().splitlines()
        name = "punctual_adapter_rounds_total "
        return float(next(line for line in lines if line.startswith(name)).split()[1])

    def _is_ready(self) -> bool:
        process = self._process
        assert process is not None
        assert process.poll() is None, self.log.read_text()[-2000:]
        return self._get("/readyz")[0] == http.client.OK

    def _is_served(self) -> bool:
        try:
            self._cluster.kubectl()("get", "--raw", ROOT)
        except KubectlError:
            return False
        return True

    def _get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=_context(), timeout=10
        )
        try:
            connection.request("GET", path)
            with connection.getresponse() as answer:
                return answer.status, answer.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()


def _time(connection: http.client.HTTPSConnection, path: str) -> float:
    headers = {"X-Remote-User": "system:serviceaccount:kube-system:horizontal-pod-autoscaler"}
    begun = time.perf_counter()
    connection.request("GET", path, headers=headers)
    with connection.getresponse() as answer:
        body = answer.read()
        assert answer.status == http.client.OK, body
    return time.perf_counter() - begun


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
