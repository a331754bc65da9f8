"""The API server, as far as the operator needs it: read, apply, delete, report.

A thin layer over `kubernetes.aio`, which brings credentials, their renewal and TLS. Objects are
plain mappings, as the server has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import client, config

from punctual_operator.kinds import BY_KIND, EVENT, Kind
from punctual_operator.metrics import Metrics
from punctual_operator.names import FIELD_MANAGER

Object = dict[str, Any]
Query = Sequence[tuple[str, str]]

APPLY = "application/apply-patch+yaml"
CHUNK = 500
"""Objects of a list read at a time."""
TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5, sock_read=10)
ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class ApiError(Exception):
    """The API server's refusal: HTTP status and message; status 0 when it was not reached."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"status {status}: {message}")
        self.status = status
        self.message = message


class Api:
    """Requests to the API server; all raise ApiError."""

    def __init__(self, connection: Any, metrics: Metrics) -> None:
        self._connection = connection
        self._metrics = metrics

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """One object, or None where there is none; no namespace: an object of the cluster."""
        try:
            return await self._request("GET", kind, kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def read_all(
        self, kind: Kind, namespace: str | None = None, limit: int | None = None
    ) -> list[Object]:
        """All objects of a kind that its selector chooses; `limit` reads one chunk alone."""
        found: list[Object] = []
        next_chunk = ""
        while True:
            query = [("limit", str(limit or CHUNK)), ("labelSelector", kind.labels)]
            query.append(("continue", next_chunk))
            given = [pair for pair in query if pair[1]]
            page = await self._request("GET", kind, kind.path(namespace), query=given)
            # items of a list come without what they have in common
            common = {"apiVersion": kind.api_version, "kind": kind.kind}
            found += [common | item for item in page.get("items") or ()]
            next_chunk = page["metadata"].get("continue", "")
            if limit or not next_chunk:
                return found

    async def apply(
        self,
        manifest: Mapping[str, Any],
        subresource: str = "",
        *,
        manager: str = FIELD_MANAGER,
        force: bool = True,
    ) -> Object:
        """Server-side apply, with the operator's field manager, taking over what others set.

        Without `force` a field that somebody else has set otherwise is a conflict (409).
        """
        kind, metadata = BY_KIND[manifest["kind"]], manifest["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"])
        path = f"{path}/{subresource}" if subresource else path
        query = [("fieldManager", manager), ("force", "true" if force else "false")]
        return await self._request("PATCH", kind, path, query=query, body=manifest, content=APPLY)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete this very object; one that is gone or was made anew is no error."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        try:
            await self._request("DELETE", kind, kind.path(namespace, name), body=body)
        except ApiError as error:
            if error.status not in {404, 409}:
                raise

    async def create_event(self, event: Mapping[str, Any]) -> None:
        """Post an Event."""
        path = EVENT.path(event["metadata"]["namespace"])
        await self._request("POST", EVENT, path, body=event)

    async def close(self) -> None:
        """Close all connections."""
        await self._connection.close()

    async def _request(
        self,
        method: str,
        kind: Kind,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, Any] | None = None,
        content: str = "application/json",
    ) -> Object:
        status, text = 0, ""
        try:
            status, text = await self._send(method, path, list(query), body, content)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            text = f"{type(error).__name__}: {error}"
        self._metrics.requests.labels(method, kind.plural, status).inc()
        if not 200 <= status < 300:
            raise ApiError(status, _message(text))
        found: Object = json.loads(text)
        return found

    async def _send(
        self, method: str, path: str, query: list[tuple[str, str]], body: Any, content: str
    ) -> tuple[int, str]:
        request = await self._connection.param_serialize(
            method,
            path,
            query_params=query,
            header_params={"Accept": "application/json", "Content-Type": content},
            body=body,
            auth_settings=["BearerToken"],
        )
        response = await self._connection.call_api(*request, _request_timeout=TIMEOUT)
        return response.status, (await response.read()).decode()


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip() or "no message"


def in_cluster() -> bool:
    """Whether this process runs in a pod that has a ServiceAccount's token."""
    return ACCOUNT_TOKEN.exists()


async def connect(metrics: Metrics) -> Api:
    """Connect by the pod's ServiceAccount, else by KUBECONFIG or `~/.kube/config`."""
    return Api(await open_connection(FIELD_MANAGER), metrics)


async def open_connection(user_agent: str) -> Any:
    """A client with the credentials that this process has."""
    settings = client.Configuration()
    if in_cluster():
        config.load_incluster_config(client_configuration=settings)
    else:
        await config.load_kube_config(client_configuration=settings)
    connection = client.ApiClient(configuration=settings)
    connection.user_agent = user_agent
    return connection
