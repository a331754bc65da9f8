"""The gateway in front of the real model server (its engine sleeps instead of computing)."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from gateway_stand.process import Program, program
from gateway_stand.stand import running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gateway_stand.stand import Stand

SERVER = (
    "--engine", "sim", "--model", "random:lab", "--served-model-name", "lab", "--port", "0",
    "--host", "127.0.0.1", "--drain-accept-seconds", "0",
)  # fmt: skip


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Stops everything at the end."""
    async with AsyncExitStack() as stack:
        yield stack


async def start_server(stack: AsyncExitStack, *options: str) -> Program:
    """A model server that is ready."""
    server = await stack.enter_async_context(
        program("punctual_model_server.main", *SERVER, *options)
    )
    async with aiohttp.ClientSession() as client:
        while True:
            async with client.get(f"{server.url}/readyz") as response:
                if response.status == 200:
                    return server
            await asyncio.sleep(0.05)


async def capacity(url: str) -> dict[str, Any]:
    """What the pod says of itself."""
    async with aiohttp.ClientSession() as client, client.get(f"{url}/v1/capacity") as response:
        said: dict[str, Any] = await response.json()
        return said


async def test_answers_pass_whole_and_streamed(stack: AsyncExitStack, tmp_path: Path) -> None:
    server = await start_server(stack, "--slots", "2")
    stand = await stack.enter_async_context(running(tmp_path, [server.url]))
    async with stand.complete(5, ignore_eos=True) as response:
        whole = await response.json()
    assert whole["usage"]["completion_tokens"] == 5
    async with stand.complete(5, stream=True, ignore_eos=True) as response:
        assert (await response.read()).count(b'"text"') == 5
    assert stand.outcomes() == {"good": 2}
    await stand.settle()


async def test_overload_is_refused_and_leaves_nothing_behind(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    server = await start_server(stack, "--slots", "1", "--sim-step-ms", "8")
    stand = await stack.enter_async_context(
        running(tmp_path, [server.url], settings={"poll_interval": 0.2})
    )

    async def ask(number: int) -> int:
        await asyncio.sleep(number * 0.02)
        headers = {"X-Deadline-Ms": "1000"}
        async with stand.complete(16, ignore_eos=True, headers=headers) as response:
            await response.read()
            return int(response.status)

    statuses = await asyncio.gather(*(ask(number) for number in range(60)))
    assert set(statuses) <= {200, 503, 504}
    assert 200 in statuses
    assert statuses.count(503) > 10
    assert stand.outcomes().get("failed", 0) == 0
    await stand.settle()
    assert (await capacity(server.url))["running"] == []


async def test_thousand_disconnects_leave_the_pod_empty(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    server = await start_server(stack, "--slots", "8", "--sim-step-ms", "2", "--no-last-word")
    stand = await stack.enter_async_context(
        running(tmp_path, [server.url], mode="Unlimited", settings={"poll_interval": 1.0})
    )
    rng = random.Random(11)
    gate = asyncio.Semaphore(64)
    await asyncio.gather(*(leave(stand, gate, rng.random()) for _ in range(1000)))
    await stand.settle()
    await until_empty(server.url)
    assert set(stand.outcomes()) <= {"cancelled", "good"}
    async with stand.complete(2) as response:
        assert response.status == 200


async def leave(stand: Stand, gate: asyncio.Semaphore, share: float) -> None:
    """Go after a moment, somewhere between the first byte and the last token."""
    async with gate:
        try:
            async with asyncio.timeout(share * 0.2), stand.complete(60, stream=True) as response:
                await response.read()
        except TimeoutError:
            return


async def until_empty(url: str) -> None:
    """Wait until nothing is on the pod."""
    while (said := await capacity(url))["running"] or said["waiting"]:  # noqa: ASYNC110  # it polls
        await asyncio.sleep(0.01)


async def test_pod_that_is_killed_fails_its_work_and_gets_no_more(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    server = await start_server(stack, "--slots", "1")
    stand = await stack.enter_async_context(running(tmp_path, [server.url]))
    client = asyncio.create_task(status_of(stand, 1000))
    await stand.until(lambda: first_tokens(stand) == 1)
    server.process.kill()
    assert await client == 502
    await stand.until(lambda: not stand.gateway.scheduler.ledger.pods)
    assert await status_of(stand, 4) == 503
    await stand.settle()


def first_tokens(stand: Stand) -> int:
    """Running requests that have got a token."""
    pods = stand.gateway.scheduler.ledger.all_pods
    return sum(bool(ticket.generated) for pod in pods for ticket in pod.residents.values())


async def status_of(stand: Stand, max_tokens: int) -> int:
    """Status of one request."""
    async with stand.complete(max_tokens, ignore_eos=True) as response:
        await response.read()
        return int(response.status)


async def test_pool_of_two_shares_the_load(stack: AsyncExitStack, tmp_path: Path) -> None:
    servers = [await start_server(stack, "--slots", "1") for _ in range(2)]
    stand = await stack.enter_async_context(
        running(tmp_path, [server.url for server in servers], mode="Unlimited")
    )
    await asyncio.gather(*(status_of(stand, 10) for _ in range(10)))
    ledger = stand.gateway.scheduler.ledger
    assert all(pod.speed.value != 1.0 for pod in ledger.all_pods)
    assert stand.outcomes() == {"good": 10}
    await stand.settle()


async def test_pod_gives_a_chance_to_whom_the_gateway_tries(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    """A maximum out of reach, of a length not known: started, and cut at its deadline."""
    server = await start_server(stack, "--slots", "2", "--sim-step-ms", "8")
    estimate = {"outputLength": "Learned"}
    stand = await stack.enter_async_context(running(tmp_path, [server.url], estimate=estimate))
    async with stand.complete(400, ignore_eos=True, headers={"X-Deadline-Ms": "800"}) as response:
        assert response.status == 504
    assert stand.outcomes() == {"late": 1}
    (known,) = (await stand.stats())["estimator"]["lengths"]
    assert (known["records"], known["mean_share"]) == (1, 1.0)
    await stand.settle()
