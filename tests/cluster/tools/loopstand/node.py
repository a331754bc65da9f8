"""A node that model pods are on: an object with a heartbeat, and no kubelet."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from loopstand.api import Api

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
NODES = "/api/v1/nodes"
HELD_SECONDS = 40
BEAT_SECONDS = 5.0


class Node:
    """Ready and closed to the scheduler, so that no other test's pods come here."""

    def __init__(self, api: Api) -> None:
        self.name = f"loop-{uuid.uuid4().hex[:6]}"
        self._api = api
        self._beaten = 0.0
        head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}}
        api.post(NODES, head | {"spec": {"unschedulable": True}})
        self._tell_ready()
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        api.post(LEASES, lease | {"metadata": {"name": self.name}, "spec": self._held()})

    def beat(self, now: float) -> None:
        """Say that the node is alive, if it is time to; `now` is monotonic seconds."""
        if now - self._beaten < BEAT_SECONDS:
            return
        self._beaten = now
        self._api.patch(f"{LEASES}/{self.name}", {"spec": self._held()})

    def remove(self) -> None:
        """Delete it."""
        self._api.delete(f"{NODES}/{self.name}")
        self._api.delete(f"{LEASES}/{self.name}")

    def _held(self) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": self.name, "leaseDurationSeconds": HELD_SECONDS, "renewTime": now}

    def _tell_ready(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
        times = {"lastHeartbeatTime": now, "lastTransitionTime": now}
        room = {"cpu": "64", "memory": "256Gi", "pods": "250"}
        status = {"conditions": [ready | times], "capacity": room, "allocatable": room}
        self._api.patch(f"{NODES}/{self.name}/status", {"status": status})
