"""An aggregated API served by the test itself, as the metrics adapter is in a cluster."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from testcluster.pki import issue
from testcluster.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testcluster.cluster import Cluster
    from testcluster.control_plane import ControlPlane

GROUP = "aggregated.punctual.dev"


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers with a list of resources that names whom the API server speaks for."""

    def do_GET(self) -> None:
        user = self.headers.get("X-Remote-User", "")
        resources = [{"name": user, "namespaced": True, "kind": "User", "verbs": ["get"]}]
        body = json.dumps(
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{GROUP}/v1",
                "resources": resources,
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Keep the test's output clean."""


@contextmanager
def serving(certificates: ssl.SSLContext) -> Iterator[int]:
    """Serve `Answer` on a free port of 127.0.0.1."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.socket = certificates.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def only_from_front_proxy(pki: Path, server_name: str, scratch: Path) -> ssl.SSLContext:
    """Return the TLS settings of a server that takes requests of the API server only."""
    for suffix in ("crt", "key"):
        (scratch / f"ca.{suffix}").write_text((pki / f"ca.{suffix}").read_text())
    issue(scratch, "server", "ca", f"/CN={server_name}", server_names=(f"DNS:{server_name}",))
    context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=str(pki / "front-proxy-ca.crt")
    )
    context.load_cert_chain(scratch / "server.crt", scratch / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def manifests(namespace: str, port: int, authority: str) -> list[dict[str, Any]]:
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    spec = {
        "group": GROUP,
        "version": "v1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "caBundle": authority,
        "service": {"name": "served", "namespace": namespace, "port": port},
    }
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "served"}, "spec": service},
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1.{GROUP}"},
            "spec": spec,
        },
    ]


def test_api_server_passes_requests_on_with_its_front_proxy_certificate(
    own_cluster: Cluster, own_namespace: str, control_plane: ControlPlane, tmp_path: Path
) -> None:
    kubectl = own_cluster.kubectl(own_namespace)
    tls = only_from_front_proxy(control_plane.pki, f"served.{own_namespace}.svc", tmp_path)
    authority = json.loads(own_cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    with serving(tls) as port:
        kubectl.apply(manifests(own_namespace, port, authority["certificate-authority-data"]))
        try:
            kubectl("wait", "--for=condition=Available", f"apiservice/v1.{GROUP}", "--timeout=50s")
            answer = json.loads(kubectl("get", "--raw", f"/apis/{GROUP}/v1"))
            assert answer["resources"][0]["name"] == "kubernetes-admin"
        finally:
            kubectl("delete", "apiservice", f"v1.{GROUP}")
    wait_until(lambda: GROUP not in kubectl("api-versions"), "the group is gone")
