"""Several gateways over one pool share one queue."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from gateway_stand.fake_pod import FakePod, answer_when_released
from gateway_stand.stand import Stand, running
from punctual_gateway.discovery import StaticDiscovery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AsyncExitStack
    from pathlib import Path

    StartPod = Callable[..., Awaitable[FakePod]]
    StartPair = Callable[..., Awaitable[tuple[Stand, Stand]]]


@contextlib.asynccontextmanager
async def listening(stand: Stand, *urls: str) -> AsyncIterator[None]:
    """The gateway listens to these addresses."""
    task = asyncio.create_task(stand.gateway.peers.follow(StaticDiscovery(urls)))
    try:
        yield
    finally:
        task.cancel()


@pytest.fixture
def start_pair(stack: AsyncExitStack, tmp_path: Path) -> StartPair:
    """Two gateways over the same pods that listen to each other."""

    async def start(*pods: FakePod, **options: Any) -> tuple[Stand, Stand]:
        urls = [pod.url for pod in pods]
        one = await stack.enter_async_context(running(tmp_path, urls, **options))
        settings = options.pop("settings", {}) | {"peers": (one.url,)}
        other = await stack.enter_async_context(
            running(tmp_path, urls, settings=settings, **options)
        )
        await stack.enter_async_context(listening(one, other.url))
        await one.until(lambda: bool(one.gateway.peers.connected))
        await other.until(lambda: bool(other.gateway.peers.connected))
        return one, other

    return start


async def ask(stand: Stand, tokens: int = 2) -> dict[str, Any]:
    async with stand.complete(tokens) as response:
        answer: dict[str, Any] = await response.json()
        return answer | {"status": response.status}


async def test_each_sees_what_waits_and_runs_at_the_other(
    start_pod: StartPod, start_pair: StartPair
) -> None:
    pod = await start_pod(behaviour=answer_when_released, slots=1)
    one, other = await start_pair(pod)
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(ask(one))
        ledger = other.gateway.scheduler.ledger
        await other.until(lambda: len(ledger.queue) == 2 and len(ledger.all_pods[0].foreign) == 1)
        assert not ledger.own_queue
        shown = await other.stats()
        assert (shown["pool"]["queued"], shown["peers"]) == (0, [one.url])
        group.create_task(ask(other))
        await one.until(lambda: len(one.gateway.scheduler.ledger.queue) == 3)
        assert len(one.gateway.scheduler.ledger.own_queue) == 2
        pod.released.set()
    for stand in (one, other):
        await stand.settle()
    assert one.outcomes() == {"good": 3}
    assert other.outcomes() == {"good": 1}


async def test_slots_are_taken_in_the_order_of_the_merged_queue(
    start_pod: StartPod, start_pair: StartPair
) -> None:
    pod = await start_pod(step=0.01, slots=1)
    stands = await start_pair(pod)
    for _ in range(4):
        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(ask(stands[number % 2]))
                await asyncio.sleep(0.004)
        for stand in stands:
            await stand.settle()
    assert sum(stand.outcomes()["good"] for stand in stands) == 32


async def test_a_peer_that_ends_is_forgotten_with_what_waited_there(
    start_pod: StartPod, stack: AsyncExitStack, tmp_path: Path
) -> None:
    pod = await start_pod(behaviour=answer_when_released, slots=1)
    one = await stack.enter_async_context(running(tmp_path, [pod.url]))
    async with running(tmp_path, [pod.url]) as other, listening(one, other.url):
        tasks = [asyncio.create_task(ask(other)) for _ in range(3)]
        ledger = one.gateway.scheduler.ledger
        await one.until(lambda: len(ledger.queue) == 2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        task = asyncio.create_task(ask(other))
        await one.until(lambda: len(ledger.all_pods[0].foreign) == 1)
        other.gateway.scheduler.hub.end()
        await one.until(lambda: not one.gateway.peers.connected)
        assert not ledger.queue
        assert [f for f in ledger.all_pods[0].foreign if f not in ledger.all_pods[0].reported] == []
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_gateway_does_not_listen_to_itself(
    start_pod: StartPod, stack: AsyncExitStack, tmp_path: Path
) -> None:
    stand = await stack.enter_async_context(running(tmp_path, [(await start_pod()).url]))
    hub = stand.gateway.scheduler.hub
    async with listening(stand, stand.url):
        # It listens for less time than `until` sleeps, so look in every turn of the loop.
        while hub.listeners != 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await stand.until(lambda: hub.listeners == 0)
        assert not stand.gateway.peers.connected


@pytest.mark.parametrize("status", [200, 404])
async def test_a_peer_that_makes_no_sense_costs_nothing(
    start_pod: StartPod, stack: AsyncExitStack, tmp_path: Path, status: int
) -> None:
    asked = asyncio.Event()

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        return web.Response(text='{"gateway": "x"}\n', status=status)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    stand = await stack.enter_async_context(running(tmp_path, [(await start_pod()).url]))
    async with listening(stand, url):
        await asked.wait()
        assert (await ask(stand))["status"] == 200
        assert not stand.gateway.peers.connected
