"""Plays the kubelet for gateway pods: gives them an address and says that they are ready.

Behind each address on loopback a small server answers `/stats` as a gateway does.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from testcluster.kubectl import Kubectl
from testcluster.waiting import wait_until

PORT = 8080
_begin = os.getpid()
_addresses = (
    f"127.77.{(_begin + high) % 256}.{low}" for high in range(256) for low in range(1, 255)
)
"""Those of two runs at a time are not the same."""
_numbers = itertools.count(1)


def next_address() -> str:
    """A loopback address that no other test uses."""
    return next(_addresses)


class Replica:
    """A gateway replica; `stats` is what it answers."""

    def __init__(self, address: str, stats: dict[str, Any]) -> None:
        self.stats = stats
        replica = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(replica.stats).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing: the tests read no log of this."""

        self._server = ThreadingHTTPServer((address, PORT), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop to answer."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Kubelet:
    """Runs the gateway pods of one namespace."""

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl
        self.replicas: list[Replica] = []

    def gateway_pod(self, policy: str = "gpt2") -> str:
        """Wait for a pod of a policy's gateway that has no address yet, and return its name."""

        def look() -> str:
            pods = self._kubectl.json("get", "pods", "-l", f"punctual.dev/policy={policy}")["items"]
            fresh = [pod for pod in pods if not pod.get("status", {}).get("podIP")]
            return str(fresh[0]["metadata"]["name"]) if fresh else ""

        return wait_until(look, f"a pod of {policy} waits")

    def run(self, generation: int, policy: str = "gpt2", **stats: Any) -> Replica:
        """Make the waiting pod of a gateway ready; it applies this generation."""
        pod, address = self.gateway_pod(policy), next_address()
        given = {"policy": {"generation": generation, "problems": []}, "pods": [], **stats}
        replica = Replica(address, given)
        self.replicas.append(replica)
        ready = [{"type": "Ready", "status": "True"}]
        self.set_status(pod, phase="Running", podIP=address, conditions=ready)
        return replica

    def set_status(self, pod: str, **status: Any) -> None:
        """Write the status of a pod, as a kubelet does."""
        self._kubectl(
            "patch", "pod", pod, "--subresource=status", "--type=merge",
            "-p", json.dumps({"status": status}),
        )  # fmt: skip

    def close(self) -> None:
        """Stop all replicas."""
        for replica in self.replicas:
            replica.close()


def usable_pod(**changes: Any) -> dict[str, Any]:
    """A model pod in a gateway's `/stats`."""
    base = {
        "url": f"http://10.9.9.{next(_numbers) % 250 + 1}:8000",
        "available": True,
        "problem": None,
        "model": "gpt2",
        "speed_ratio": 1.0,
        "step_seconds": [0.01, 0.012],
        "prefill_seconds": {"base": 0.02, "per_token": 0.001},
    }
    return base | changes
