"""What was asked of the API server, read from its audit log."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# One line for each request when it is answered, and for a watch also when it begins. Nothing of
# Kubernetes' own components: their traffic is large and no test counts it.
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "None",
            "users": [
                "system:apiserver",
                "system:kube-controller-manager",
                "system:kube-scheduler",
            ],
        },
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata"},
    ],
}
SETTLE_SECONDS = 10.0


@dataclass(frozen=True)
class Request:
    """One request: who asked, for what, and how it was answered."""

    user: str
    agent: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    status: int
    uri: str

    @property
    def target(self) -> str:
        """The object or collection, as in `punctual-7/services/gateway/status`."""
        parts = (self.namespace, self.resource, self.name, self.subresource)
        return "/".join(part for part in parts if part)


class AuditLog:
    """The audit log of an own control plane; `ping` sends one request that shows in it."""

    def __init__(self, path: Path, ping: Callable[[str], object]) -> None:
        self._path = path
        self._ping = ping

    @contextmanager
    def recording(self, *, user: str = "", agent: str = "") -> Iterator[Recording]:
        """Give the requests made inside the `with` block; they are there once it has ended.

        `user` (such as `system:serviceaccount:NAMESPACE:NAME`) must be equal, `agent` a part of the
        client's user agent; empty counts all clients.
        """
        record = Recording()
        start = self._path.stat().st_size
        yield record
        record.requests = self.since(start, user=user, agent=agent)

    def position(self) -> int:
        """Return a place in the log to give to `since`."""
        return self._path.stat().st_size

    def since(self, position: int, *, user: str = "", agent: str = "") -> list[Request]:
        """Return the requests answered (watches: begun) after a position, oldest first."""
        self._settle()
        found = self._read(position)
        return [
            request
            for request in found
            if (not user or request.user == user) and agent in request.agent
        ]

    def _settle(self) -> None:
        # the line of a request is written when its answer is out: ours comes after all before it
        marker = f"settle-{time.monotonic_ns()}"
        start = self._path.stat().st_size
        self._ping(f"/version?{marker}")
        end = time.monotonic() + SETTLE_SECONDS
        while marker.encode() not in self._bytes(start):
            if time.monotonic() > end:
                raise TimeoutError(f"the audit log {self._path} must show a request within 10 s")
            time.sleep(0.01)

    def _read(self, position: int) -> list[Request]:
        seen: set[str] = set()
        requests = []
        for line in self._bytes(position).splitlines():
            event = json.loads(line)
            if event["auditID"] not in seen and "?settle-" not in event["requestURI"]:
                requests.append(_request(event))
            seen.add(event["auditID"])
        return requests

    def _bytes(self, position: int) -> bytes:
        with self._path.open("rb") as log:
            log.seek(position)
            found = log.read()
        return found[: found.rfind(b"\n") + 1]


class Recording:
    """The requests of one `with` block of `AuditLog.recording`."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def count(self, verb: str = "", resource: str = "") -> int:
        """Return how many requests there were, of one verb or resource if given."""
        return sum(
            (not verb or request.verb == verb) and (not resource or request.resource == resource)
            for request in self.requests
        )

    def by_object(self) -> Counter[tuple[str, str]]:
        """Return the number of requests for each (verb, target)."""
        return Counter((request.verb, request.target) for request in self.requests)


def _request(event: dict[str, Any]) -> Request:
    target = event.get("objectRef", {})
    return Request(
        user=event["user"]["username"],
        agent=event.get("userAgent", ""),
        verb=event["verb"],
        group=target.get("apiGroup", ""),
        resource=target.get("resource", ""),
        subresource=target.get("subresource", ""),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        status=event.get("responseStatus", {}).get("code", 0),
        uri=event["requestURI"],
    )
