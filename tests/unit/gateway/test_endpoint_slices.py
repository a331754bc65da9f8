"""Following EndpointSlices: what they say, and a server that ends, refuses and forgets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client

from punctual_admission.policy import Backend
from punctual_gateway import endpoint_slices
from punctual_gateway.endpoint_slices import EndpointSliceDiscovery, pod_urls


def slice_of(name: str, *addresses: str, **conditions: bool) -> dict[str, Any]:
    endpoints = [{"addresses": [address], "conditions": conditions} for address in addresses]
    return {
        "metadata": {"name": name, "resourceVersion": "1"},
        "addressType": "IPv4",
        "endpoints": endpoints,
    }


@pytest.mark.parametrize(
    ("conditions", "known"),
    [
        ({}, True),
        ({"ready": True}, True),
        ({"ready": False}, False),
        ({"ready": True, "serving": True}, True),
        ({"ready": False, "serving": True, "terminating": True}, True),
        ({"ready": False, "serving": False, "terminating": True}, False),
    ],
)
def test_pod_is_known_while_it_serves(conditions: dict[str, bool], known: bool) -> None:
    urls = pod_urls([slice_of("a", "10.0.0.1", **conditions)], 8000)
    assert urls == (frozenset({"http://10.0.0.1:8000"}) if known else frozenset())


def test_all_slices_of_a_service_are_one_set() -> None:
    six = slice_of("b", "fd00::1") | {"addressType": "IPv6"}
    name = slice_of("c", "example.invalid") | {"addressType": "FQDN"}
    none = {"metadata": {"name": "d"}, "endpoints": None}
    urls = pod_urls([slice_of("a", "10.0.0.1", "10.0.0.2"), six, name, none], 80)
    assert urls == {"http://10.0.0.1:80", "http://10.0.0.2:80", "http://[fd00::1]:80"}


@dataclass
class Script:
    """What the server answers: each list in turn, and each watch in turn."""

    lists: list[Any]
    watches: list[list[dict[str, Any]]]
    queries: list[dict[str, str]]


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Script, str]]:
    monkeypatch.setattr(endpoint_slices, "FIRST_BACKOFF", 0.001)
    monkeypatch.setattr(endpoint_slices, "RECONNECT_SECONDS", 0.001)
    script = Script([], [], [])

    async def answer(request: web.Request) -> web.StreamResponse:
        script.queries.append(dict(request.query))
        if "watch" not in request.query:
            found = script.lists.pop(0)
            if isinstance(found, int):
                return web.Response(status=found, text="no")
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": found})
        response = web.StreamResponse()
        await response.prepare(request)
        if not script.watches:
            await asyncio.sleep(60)
        for event in script.watches.pop(0):
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    application = web.Application()
    path = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices"
    application.router.add_get(path, answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield script, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


class Follower:
    """A discovery on that server; `take` gives the next set."""

    def __init__(self, url: str) -> None:
        self.backend = Backend(service="pods", port=8000)
        self.discovery = EndpointSliceDiscovery(
            "shop", lambda: self.backend, lambda: connect(url), inactivity=0.2
        )
        self._sets = self.discovery.watch()

    async def take(self) -> set[str]:
        async with asyncio.timeout(10):
            return {url.split("//")[1] for url in await anext(self._sets)}

    async def close(self) -> None:
        await self._sets.aclose()


async def connect(url: str) -> Any:
    return client.ApiClient(configuration=client.Configuration(host=url))


def event(kind: str, given: dict[str, Any], version: str) -> dict[str, Any]:
    return {
        "type": kind,
        "object": given | {"metadata": given["metadata"] | {"resourceVersion": version}},
    }


async def test_changes_follow_the_list(server: tuple[Script, str]) -> None:
    script, url = server
    script.lists = [[slice_of("a", "10.0.0.1")]]
    script.watches = [
        [
            event("ADDED", slice_of("b", "10.0.0.2"), "8"),
            event("DELETED", slice_of("a", "10.0.0.1"), "9"),
        ],
        [event("MODIFIED", slice_of("b"), "10")],
    ]
    follower = Follower(url)
    assert await follower.take() == {"10.0.0.1:8000"}
    assert await follower.take() == {"10.0.0.1:8000", "10.0.0.2:8000"}
    assert await follower.take() == {"10.0.0.2:8000"}
    assert await follower.take() == set()
    versions = [query["resourceVersion"] for query in script.queries if "watch" in query]
    assert versions == ["7", "9"]
    await follower.close()


async def test_bookmarks_move_the_version_on(server: tuple[Script, str]) -> None:
    script, url = server
    script.lists = [[]]
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "20"}}}
    script.watches = [[bookmark], [event("ADDED", slice_of("a", "10.0.0.1"), "21")]]
    follower = Follower(url)
    assert await follower.take() == set()
    assert await follower.take() == {"10.0.0.1:8000"}
    versions = [query["resourceVersion"] for query in script.queries if "watch" in query]
    assert versions == ["7", "20"]
    await follower.close()


async def test_version_that_is_too_old_brings_a_new_list(server: tuple[Script, str]) -> None:
    script, url = server
    script.lists = [[slice_of("a", "10.0.0.1")], [slice_of("c", "10.0.0.3")]]
    script.watches = [[{"type": "ERROR", "object": {"code": 410, "message": "too old"}}]]
    follower = Follower(url)
    assert await follower.take() == {"10.0.0.1:8000"}
    assert await follower.take() == {"10.0.0.3:8000"}
    await follower.close()


@pytest.mark.parametrize(
    "failure", [[{"type": "ERROR", "object": {"code": 500, "message": "broken"}}], []]
)
async def test_failure_leaves_the_known_pods_and_is_tried_again(
    server: tuple[Script, str], failure: list[dict[str, Any]]
) -> None:
    script, url = server
    script.lists = [[slice_of("a", "10.0.0.1")], 403, 500, [slice_of("a", "10.0.0.1", "10.0.0.2")]]
    # without a watch to give, the server is silent until the watch counts as dead
    script.watches = [failure] if failure else []
    follower = Follower(url)
    assert await follower.take() == {"10.0.0.1:8000"}
    assert await follower.take() == {"10.0.0.1:8000", "10.0.0.2:8000"}
    assert script.lists == []
    await follower.close()


async def test_policy_that_names_another_service_is_followed(
    server: tuple[Script, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_slices, "TICK_SECONDS", 0.01)
    script, url = server
    script.lists = [[slice_of("a", "10.0.0.1")], [slice_of("z", "10.0.0.9")]]
    follower = Follower(url)
    assert await follower.take() == {"10.0.0.1:8000"}
    follower.backend = Backend(service="others", port=9000)
    assert await follower.take() == {"10.0.0.9:9000"}
    assert script.queries[-1]["labelSelector"] == "kubernetes.io/service-name=others"
    await follower.close()


async def test_server_that_is_not_there_is_tried_again(server: tuple[Script, str]) -> None:
    script, url = server
    script.lists = [[slice_of("a", "10.0.0.1")]]
    urls = iter(["http://127.0.0.1:1", url])
    follower = Follower(url)
    follower.discovery = EndpointSliceDiscovery(
        "shop", lambda: follower.backend, lambda: connect(next(urls))
    )
    sets = follower.discovery.watch()
    async with asyncio.timeout(10):
        assert await anext(sets) == {"http://10.0.0.1:8000"}
    assert follower.discovery.heard > 0
    await sets.aclose()
