"""Clients that leave in every phase: their places are free at once, on the gateway and the pod."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from gateway_stand import fake_pod
from punctual_gateway import relay

if TYPE_CHECKING:
    from gateway_stand.stand import Stand
    from integration.gateway.conftest import StartGateway, StartPod

BODY = b'{"model":"lab","prompt":[1,2,3],"max_tokens":50,"stream":true}'
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY)
PHASES = ("before body", "half body", "sent", "queued or running", "streaming")


async def leave_in(stand: Stand, phase: str, rng: random.Random, *, abort: bool) -> None:
    """Send as much as the phase says, then go."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    if phase == "before body":
        writer.write(HEAD)
    elif phase == "half body":
        writer.write(HEAD + BODY[: rng.randrange(1, len(BODY))])
    else:
        writer.write(HEAD + BODY)
    if phase == "queued or running":
        await asyncio.sleep(rng.random() * 0.05)
    elif phase == "streaming":
        await reader.read(1)
    transport = writer.transport
    transport.abort() if abort else transport.close()


async def test_thousand_disconnects_in_every_phase_leave_nothing_behind(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(slots=8, step=0.002, told_step=0.0001)
    stand = await start_gateway(pod, mode="Unlimited", settings={"poll_interval": 1.0})
    rng = random.Random(7)
    gate = asyncio.Semaphore(50)

    async def one(number: int) -> None:
        async with gate:
            await leave_in(stand, PHASES[number % len(PHASES)], rng, abort=number % 2 == 0)

    await asyncio.gather(*(one(number) for number in range(1000)))
    await stand.settle()
    await pod.wait_idle()
    assert set(stand.outcomes()) <= {"cancelled", "good"}
    assert stand.outcomes()["cancelled"] > 500
    async with stand.complete(2) as response:
        assert response.status == 200


async def test_queued_request_whose_client_left_is_never_sent(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(slots=1, behaviour=fake_pod.hang)
    stand = await start_gateway(pod, mode="Unlimited")
    ledger = stand.gateway.scheduler.ledger
    tasks = [asyncio.create_task(leave_when_queued(stand, count)) for count in range(1, 4)]
    await stand.until(lambda: ledger.running == 1 and len(ledger.queue) == 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await stand.settle()
    await pod.wait_idle()
    assert len(pod.calls) == 1
    assert stand.outcomes() == {"cancelled": 3}


async def leave_when_queued(stand: Stand, max_tokens: int) -> None:
    """Wait for an answer that never comes."""
    async with stand.complete(max_tokens) as response:
        await response.read()


async def test_place_of_a_client_that_left_goes_to_the_next_in_the_queue(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(slots=1, behaviours=[fake_pod.hang])
    stand = await start_gateway(pod, mode="Unlimited")
    hanging = asyncio.create_task(leave_when_queued(stand, 1))
    await pod.wait_active(1)
    waiting = asyncio.create_task(leave_when_queued(stand, 2))
    await stand.until(lambda: len(stand.gateway.scheduler.ledger.queue) == 1)
    hanging.cancel()
    await waiting
    await stand.settle()
    assert stand.outcomes() == {"cancelled": 1, "good": 1}


@pytest.mark.parametrize("stream", [True, False])
async def test_work_on_the_pod_stops_when_the_client_leaves(
    start_pod: StartPod, start_gateway: StartGateway, stream: bool
) -> None:
    pod = await start_pod(behaviour=fake_pod.stall)
    stand = await start_gateway(pod)
    client = asyncio.create_task(read_all(stand, stream=stream))
    await stand.until(
        lambda: any(
            ticket.generated == 2
            for known in stand.gateway.scheduler.ledger.all_pods
            for ticket in known.residents.values()
        )
    )
    client.cancel()
    await pod.wait_idle()
    await stand.settle()
    assert stand.outcomes() == {"cancelled": 1}


async def read_all(stand: Stand, *, stream: bool) -> None:
    """Read an answer to its end."""
    async with stand.complete(stream=stream) as response:
        await response.read()


async def test_client_that_reads_nothing_counts_as_left(
    start_pod: StartPod, start_gateway: StartGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "STALLED_AFTER", 0.05)
    pod = await start_pod(behaviour=fake_pod.flood)
    stand = await start_gateway(pod)
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port, limit=1024)
    writer.write(HEAD + BODY)
    await pod.wait_active(1)
    await pod.wait_idle()
    await stand.settle()
    assert stand.outcomes() == {"cancelled": 1}
    assert await reader.read(1)
    writer.close()


async def test_client_that_asks_on_without_reading_is_not_answered_on(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """What waits for it in memory is bounded."""
    stand = await start_gateway(await start_pod())
    _, writer = await asyncio.open_connection("127.0.0.1", stand.port, limit=1024)
    for _ in range(3000):
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
    await stand.until(lambda: any(one.writing_paused for one in stand.server.connections))
    handled = stand.server.requests_count
    for _ in range(100):
        await asyncio.sleep(0)
    assert stand.server.requests_count == handled
    writer.transport.abort()


async def test_half_closed_connection_counts_as_left(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fake_pod.hang)
    stand = await start_gateway(pod)
    _, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    writer.write(HEAD + BODY)
    await pod.wait_active(1)
    writer.write_eof()
    await pod.wait_idle()
    await stand.settle()
    assert stand.outcomes() == {"cancelled": 1}
    writer.close()
