"""Asking gateways over real sockets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from punctual_operator import gateway_client
from punctual_operator.gateway_client import GatewayClient
from punctual_operator.observed import GatewayPod


class Replica:
    """A server of `/stats` on loopback."""

    def __init__(self) -> None:
        self.stats: Any = {"policy": {"generation": 1}}
        self.status = 200
        self.asked = 0
        self.failures = 0

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            return web.Response(status=503)
        return web.Response(text=json.dumps(self.stats), status=self.status)


@pytest.fixture
async def replica(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Replica]:
    found = Replica()
    application = web.Application()
    application.router.add_get("/stats", found.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setattr(gateway_client, "HTTP_PORT", runner.addresses[0][1])
    yield found
    await runner.cleanup()


@pytest.fixture
async def client() -> AsyncIterator[GatewayClient]:
    found = GatewayClient()
    yield found
    await found.close()


POD = GatewayPod("a", "127.0.0.1", ready=True)


async def test_report_is_remembered_until_it_is_old(
    replica: Replica, client: GatewayClient
) -> None:
    for age in (1000.0, 1000.0, 0.0):
        await client.ask("shop", [POD], 1, age)
    assert replica.asked == 2
    report = client.known("shop", [POD])["a"].report
    assert report is not None
    assert report.generation == 1


async def test_replica_behind_the_policy_is_asked_each_time(
    replica: Replica, client: GatewayClient
) -> None:
    for _ in range(3):
        await client.ask("shop", [POD], 2, 1000.0)
    assert replica.asked == 3


async def test_replica_that_is_not_ready_is_not_asked(
    replica: Replica, client: GatewayClient
) -> None:
    await client.ask("shop", [GatewayPod("a", "127.0.0.1", ready=False)], 1, 0.0)
    assert replica.asked == 0


@pytest.mark.parametrize(
    ("status", "stats", "words"),
    [(503, {}, "status 503"), (200, [], "object"), (200, {"policy": {}}, "generation")],
)
async def test_wrong_answer_is_told(
    replica: Replica, client: GatewayClient, status: int, stats: Any, words: str
) -> None:
    replica.status, replica.stats = status, stats
    await client.ask("shop", [POD], 1, 0.0)
    answer = client.known("shop", [POD])["a"]
    assert answer.report is None
    assert words in answer.error


async def test_long_report_is_read_to_its_end(replica: Replica, client: GatewayClient) -> None:
    """It comes in pieces."""
    replica.stats["queue"] = ["x" * 1000] * 1000
    await client.ask("shop", [POD], 1, 0.0)
    assert client.known("shop", [POD])["a"].report is not None


async def test_report_without_an_end_is_told(
    replica: Replica, client: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_client, "MAXIMUM_BYTES", 1000)
    replica.stats["queue"] = ["x" * 1000]
    await client.ask("shop", [POD], 1, 0.0)
    assert "must be at most 1000 bytes" in client.known("shop", [POD])["a"].error


async def test_replica_that_has_answered_is_asked_twice_before_it_counts_as_silent(
    replica: Replica, client: GatewayClient
) -> None:
    silent = []
    for failures in (1, 0, 1, 2):
        replica.failures = failures
        await client.ask("shop", [POD], 1, 0.0)
        silent.append(client.known("shop", [POD])["a"].report is None)
    assert silent == [True, False, False, True]


async def test_closed_port_is_told(client: GatewayClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_client, "HTTP_PORT", 1)
    await client.ask("shop", [POD], 1, 0.0)
    assert client.known("shop", [POD])["a"].error


async def test_replica_that_is_gone_is_forgotten(replica: Replica, client: GatewayClient) -> None:
    await client.ask("shop", [POD], 1, 0.0)
    client.forget("shop", "a")
    assert client.known("shop", [POD]) == {}
