"""The pods behind a Service, by a watch of its EndpointSlices.

List, then watch from the list's version; a watch that ends is continued from the last version that
was seen, and one that the server no longer has that version for (410) begins with a new list. A
watch on which nothing comes, not even the bookmark of each minute, is opened anew. While the API
server cannot be reached the known pods stay: whether they live, their own monitors tell.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import aiohttp
from kubernetes.aio import client, config

if TYPE_CHECKING:
    from punctual_admission.policy import Backend

log = logging.getLogger(__name__)

Slice = Mapping[str, Any]

SERVICE_LABEL = "kubernetes.io/service-name"
SERVER_SECONDS = 290
"""How long the server may keep one watch open."""
INACTIVITY_SECONDS = 75.0
"""A server sends a bookmark each minute; with nothing for so long the connection is dead."""
TICK_SECONDS = 1.0
"""How soon a changed policy is noticed."""
RECONNECT_SECONDS = 0.1
GONE = 410
"""The version to go on from is too old: list anew."""
FIRST_BACKOFF, LONGEST_BACKOFF = 0.2, 30.0
LIST_TIMEOUT = aiohttp.ClientTimeout(total=15, sock_connect=5)
WATCH_TIMEOUT = aiohttp.ClientTimeout(total=SERVER_SECONDS + 10, sock_connect=5)
FAILURES = (
    aiohttp.ClientError,
    TimeoutError,
    OSError,
    ValueError,
    KeyError,
    config.ConfigException,
)


class WatchError(ValueError):
    """The API server's answer was not the one to go on with."""


async def connect_to_cluster() -> Any:
    """An API client by the pod's ServiceAccount, whose token it renews, else by KUBECONFIG."""
    settings = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=settings)
    except config.ConfigException:
        await config.load_kube_config(client_configuration=settings, persist_config=False)
    return client.ApiClient(configuration=settings)


class EndpointSliceDiscovery:
    """Follows the Service that `backend` names at the moment, in one namespace."""

    def __init__(
        self,
        namespace: str,
        backend: Callable[[], Backend],
        connect: Callable[[], Awaitable[Any]] = connect_to_cluster,
        inactivity: float = INACTIVITY_SECONDS,
    ) -> None:
        self._namespace = namespace
        self._backend = backend
        self._connect = connect
        self._inactivity = inactivity
        self._connection: Any = None
        self.heard = 0.0
        """When the API server was last heard, in monotonic seconds; 0 before the first time."""

    @property
    def _target(self) -> tuple[str, int]:
        backend = self._backend()
        return backend.service, backend.port

    async def watch(self) -> AsyncGenerator[frozenset[str]]:
        """Yield the pods' base URLs now and after each change."""
        known: frozenset[str] | None = None
        failures = 0
        try:
            while True:
                try:
                    async with aclosing(self._follow(*self._target)) as following:
                        async for urls in following:
                            failures = 0
                            if urls != known:
                                known = urls
                                yield urls
                except FAILURES as error:
                    failures += 1
                    await self._back_off(failures, error)
        finally:
            await self._close()

    async def _follow(self, service: str, port: int) -> AsyncGenerator[frozenset[str]]:
        """The pods of one Service until the policy names another or the server wants a new list."""
        slices, version = await self._list(service)
        yield pod_urls(slices.values(), port)
        while self._target == (service, port):
            async with aclosing(self._events(service, version)) as events:
                async for event in events:
                    given = event["object"]
                    if event["type"] == "ERROR" and given.get("code") == GONE:
                        return
                    if event["type"] == "ERROR":
                        raise WatchError(str(given.get("message")))
                    version = given["metadata"]["resourceVersion"]
                    _apply(slices, event["type"], given)
                    yield pod_urls(slices.values(), port)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _list(self, service: str) -> tuple[dict[str, Slice], str]:
        response = await self._get(service, {}, LIST_TIMEOUT)
        found = json.loads(await response.read())
        self.heard = time.monotonic()
        items = found.get("items") or ()
        return {item["metadata"]["name"]: item for item in items}, found["metadata"][
            "resourceVersion"
        ]

    async def _events(self, service: str, version: str) -> AsyncGenerator[dict[str, Any]]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(SERVER_SECONDS),
        }
        response = await self._get(service, query, WATCH_TIMEOUT)
        try:
            while line := await self._line(response, (service, self._target[1])):
                self.heard = time.monotonic()
                yield json.loads(line)
        finally:
            _drop(response)

    async def _line(self, response: aiohttp.ClientResponse, target: tuple[str, int]) -> bytes:
        """The next line; empty when the watch has ended or the policy names another Service."""
        reading = asyncio.ensure_future(response.content.readline())
        end = time.monotonic() + self._inactivity
        try:
            while not reading.done() and self._target == target:
                if time.monotonic() > end:
                    raise WatchError(f"nothing was heard for {self._inactivity:g} s")
                await asyncio.wait({reading}, timeout=min(TICK_SECONDS, self._inactivity))
            return reading.result() if reading.done() else b""
        finally:
            reading.cancel()

    async def _get(
        self, service: str, query: Mapping[str, str], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        if self._connection is None:
            self._connection = await self._connect()
        request = await self._connection.param_serialize(
            "GET",
            f"/apis/discovery.k8s.io/v1/namespaces/{self._namespace}/endpointslices",
            query_params=[("labelSelector", f"{SERVICE_LABEL}={service}"), *query.items()],
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            auth_settings=["BearerToken"],
        )
        answer = await self._connection.call_api(*request, _request_timeout=timeout)
        response: aiohttp.ClientResponse = answer.response
        if response.status != 200:
            text = (await response.read()).decode(errors="replace")
            raise WatchError(f"the API server answered {response.status}: {text[:300]}")
        return response

    async def _back_off(self, failures: int, error: BaseException) -> None:
        delay = min(FIRST_BACKOFF * 2.0 ** min(failures - 1, 16), LONGEST_BACKOFF)
        delay *= random.uniform(0.7, 1.3)
        log.warning(
            "following the pods failed, the known ones stay; next try in %.1f s: %s",
            delay,
            str(error) or type(error).__name__,
        )
        # a connection that failed may be one of many that lead nowhere
        await self._close()
        await asyncio.sleep(delay)

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _drop(response: aiohttp.ClientResponse) -> None:
    """End a watch at once: a dead peer answers no farewell, and TLS would wait for it."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _apply(slices: dict[str, Slice], kind: str, given: Slice) -> None:
    name = given["metadata"].get("name", "")
    if kind == "DELETED":
        slices.pop(name, None)
    elif kind in {"ADDED", "MODIFIED"}:
        slices[name] = given


def pod_urls(slices: Iterable[Slice], port: int) -> frozenset[str]:
    """The base URLs of the pods that serve.

    A pod that is being stopped still serves what it has: it stays known, and says itself that it
    takes nothing new.
    """
    return frozenset(
        f"http://{_host(address)}:{port}"
        for item in slices
        if item.get("addressType") != "FQDN"
        for endpoint in item.get("endpoints") or ()
        if _serves(endpoint.get("conditions") or {})
        for address in endpoint.get("addresses") or ()
    )


def _serves(conditions: Mapping[str, Any]) -> bool:
    serving = conditions.get("serving")
    # an absent condition is to be taken for true, says the API
    return conditions.get("ready") is not False if serving is None else bool(serving)


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
