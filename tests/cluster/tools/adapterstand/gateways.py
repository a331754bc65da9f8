"""Gateway pods of a namespace: Pod objects, and a small server behind each address."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import threading
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from aiohttp import web

from testcluster.kubectl import Kubectl

PORT = 8080
_begin = os.getpid()
_addresses = (
    f"127.78.{(_begin + high) % 256}.{low}" for high in range(256) for low in range(1, 255)
)
"""Those of two runs at a time are not the same."""
_numbers = itertools.count(1)


class Replica:
    """One gateway replica; `signals` is what it answers, None: its first window has not passed."""

    def __init__(self, name: str, policy: str, namespace: str, signals: object) -> None:
        self.name, self.signals = name, signals
        self.address = next(_addresses)
        self._speaks_for = {"name": policy, "namespace": namespace, "generation": 1}
        self._stop: Any = None

    def close(self) -> None:
        """Stop to answer."""
        if self._stop is not None:
            stop, self._stop = self._stop, None
            stop()

    async def answer(self, _: web.Request) -> web.Response:
        """The body of `/signals`."""
        given = {"policy": self._speaks_for, "signals": self.signals}
        # NaN is no JSON, and yet a broken gateway could send it
        text = json.dumps(given).replace('"NaN"', "NaN")
        return web.Response(text=text, content_type="application/json")


class Gateways:
    """All replicas of one namespace, served by one thread."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runners: list[web.AppRunner] = []

    def run(
        self, signals: Mapping[str, Any] | None, policy: str = "gpt2", speaks_for: str = ""
    ) -> Replica:
        """Make a ready replica of a policy's gateway."""
        return self._run([policy], signals, speaks_for)[0]

    def run_many(self, signals: Mapping[str, Any], policies: Iterable[str]) -> list[Replica]:
        """Make one ready replica for each policy."""
        return self._run(list(policies), signals, "")

    def remove(self, replica: Replica) -> None:
        """Delete a replica's pod."""
        replica.close()
        self.kubectl("delete", "pod", replica.name, "--force", "--grace-period=0")

    def close(self) -> None:
        """Stop all replicas."""
        for runner in self._runners:
            self._wait(runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self, policies: list[str], signals: object, speaks_for: str) -> list[Replica]:
        namespace = self.kubectl.namespace
        replicas = [
            Replica(f"gateway-{next(_numbers)}", speaks_for or name, namespace, signals)
            for name in policies
        ]
        for replica in replicas:
            self._wait(self._serve(replica))
        pods = [_pod(one, name) for one, name in zip(replicas, policies, strict=True)]
        self.kubectl.apply(pods)
        states = [pod | _status(one) for pod, one in zip(pods, replicas, strict=True)]
        self.kubectl.apply(states, "--subresource=status", "--field-manager=kubelet")
        return replicas

    async def _serve(self, replica: Replica) -> None:
        application = web.Application()
        application.router.add_get("/signals", replica.answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, replica.address, PORT).start()
        self._runners.append(runner)
        replica._stop = lambda: self._wait(runner.cleanup())

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)


def _pod(replica: Replica, policy: str) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/managed-by": "punctual-operator",
        "punctual.dev/policy": policy,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": replica.name, "labels": labels},
        "spec": {"containers": [{"name": "gateway", "image": "example.invalid/gateway:1"}]},
    }


def _status(replica: Replica) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "status": {
            "phase": "Running",
            "podIP": replica.address,
            "podIPs": [{"ip": replica.address}],
            "conditions": ready,
        }
    }
