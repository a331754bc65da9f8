"""Work that is stopped, because its client left or its deadline passed, is counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gateway_stand import fake_pod

if TYPE_CHECKING:
    from gateway_stand.stand import Stand
    from integration.gateway.conftest import StartGateway, StartPod

PREFILL, STEP, SLOTS = 0.05, 0.2, 4


def counted(stand: Stand, outcome: str) -> tuple[float, float]:
    """GPU-seconds wasted and saved."""
    metrics = stand.gateway.metrics
    return metrics.wasted.values[(outcome,)], metrics.saved.values[(outcome,)]


async def read_all(stand: Stand, max_tokens: int) -> None:
    """Read an answer to its end."""
    async with stand.complete(max_tokens, stream=True) as response:
        await response.read()


def generated(stand: Stand) -> int:
    """Tokens of the requests that run."""
    pods = stand.gateway.scheduler.ledger.all_pods
    return sum(ticket.generated for pod in pods for ticket in pod.residents.values())


async def test_client_that_leaves_wastes_what_was_made_and_saves_the_rest(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """Two of ten tokens: prefill and one step of a full batch, and the other eight steps."""
    pod = await start_pod(
        slots=SLOTS, told_step=STEP, told_prefill=PREFILL, behaviour=fake_pod.stall
    )
    stand = await start_gateway(pod)
    client = asyncio.create_task(read_all(stand, 10))
    await stand.until(lambda: generated(stand) == 2)
    client.cancel()
    await pod.wait_idle()
    await stand.settle()
    wasted, saved = counted(stand, "cancelled")
    assert wasted == pytest.approx(PREFILL + STEP / SLOTS)
    assert saved == pytest.approx(8 * STEP / SLOTS)


async def test_client_that_leaves_the_queue_wastes_nothing(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """All of its work is saved."""
    pod = await start_pod(slots=1, told_step=0.01, told_prefill=0.01, behaviour=fake_pod.hang)
    stand = await start_gateway(pod, mode="Unlimited")
    running = asyncio.create_task(read_all(stand, 1))
    await pod.wait_active(1)
    waiting = asyncio.create_task(read_all(stand, 5))
    await stand.until(lambda: len(stand.gateway.scheduler.ledger.queue) == 1)
    waiting.cancel()
    await stand.until(lambda: not stand.gateway.scheduler.ledger.queue)
    await stand.until(lambda: stand.outcomes() == {"cancelled": 1})
    wasted, saved = counted(stand, "cancelled")
    assert wasted == 0.0
    assert saved == pytest.approx(0.05)
    running.cancel()
    await stand.settle()


async def test_answer_that_passes_its_deadline_is_stopped_on_the_pod_and_counted(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """What the pod had made was in vain, what it had not is saved."""
    pod = await start_pod(told_step=0.001, told_prefill=0.001, behaviour=fake_pod.stall)
    stand = await start_gateway(pod)
    async with stand.complete(10, headers={"X-Deadline-Ms": "1000"}) as response:
        assert response.status == 504
    await pod.wait_idle()
    await stand.settle()
    wasted, saved = counted(stand, "late")
    assert wasted > 0
    assert saved > 0
