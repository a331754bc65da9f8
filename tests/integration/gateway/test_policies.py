"""What the policy's choices do to requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from gateway_stand import fake_pod

if TYPE_CHECKING:
    from gateway_stand.stand import Stand
    from integration.gateway.conftest import StartGateway, StartPod


async def ask(stand: Stand, max_tokens: int, deadline_ms: int) -> tuple[int, dict[str, Any]]:
    """Status and error of one request."""
    headers = {"X-Deadline-Ms": str(deadline_ms)}
    async with stand.complete(max_tokens, headers=headers) as response:
        return response.status, (await response.json()).get("error", {})


async def test_longest_waiting_request_is_displaced_for_shorter_ones_and_told_so(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(slots=1, told_step=0.1, behaviours=[fake_pod.stop_at_deadline])
    stand = await start_gateway(pod, queue={"displacement": "Longest"})
    ledger = stand.gateway.scheduler.ledger
    running = asyncio.create_task(ask(stand, 2, 20_000))
    await pod.wait_active(1)
    long = asyncio.create_task(ask(stand, 50, 8_000))
    await stand.until(lambda: len(ledger.queue) == 1)
    short = asyncio.create_task(ask(stand, 40, 7_900))
    status, error = await long
    assert (status, error["type"], error["code"]) == (503, "deadline_exceeded", "displaced")
    pod.released.set()
    assert (await running)[0] == 504
    assert (await short)[0] == 200
    assert stand.outcomes() == {"expired": 1, "late": 1, "good": 1}
    await stand.settle()


async def test_first_token_objective_leaves_an_answer_alone_once_it_has_begun(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(step=0.4)
    stand = await start_gateway(pod, objective="FirstToken")
    headers = {"X-Deadline-Ms": "1500"}
    async with stand.complete(5, stream=True, headers=headers) as response:
        assert (await response.read()).endswith(b"[DONE]\n\n")
    assert "X-Punctual-Remaining-Ms" not in pod.headers[0]
    await stand.settle()


async def test_first_token_that_does_not_come_in_time_is_cut(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fake_pod.hang)
    stand = await start_gateway(pod, objective="FirstToken")
    assert (await ask(stand, 4, 200))[0] == 504
    await pod.wait_idle()
    await stand.settle()


async def test_waiting_request_that_passes_its_deadline_is_dropped_unstarted(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(slots=1, behaviours=[fake_pod.hang])
    stand = await start_gateway(pod, mode="Deadline", queue={"maximumRequests": 5})
    running = asyncio.create_task(ask(stand, 4, 60_000))
    await pod.wait_active(1)
    status, error = await ask(stand, 4, 150)
    assert (status, error["type"], error["code"]) == (
        503, "deadline_exceeded", "deadline_exceeded",
    )  # fmt: skip
    assert len(pod.calls) == 1
    running.cancel()
    await stand.settle()
    assert stand.outcomes() == {"expired": 1, "cancelled": 1}


async def test_metrics_are_valid_and_count_each_request_once(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(told_step=0.01))
    assert (await ask(stand, 2, 20_000))[0] == 200
    assert (await ask(stand, 1000, 100))[0] == 503
    async with stand.client.get(f"{stand.url}/metrics") as response:
        text = await response.text()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["punctual_requests_total", "good", ""] == 1
    assert samples["punctual_requests_total", "refused", "deadline_unreachable"] == 1
    assert samples["punctual_refusal_seconds_count",] == 1
    assert samples["punctual_promises_total", "true"] == 1
    assert samples["punctual_pods_available",] == 1
    assert samples["punctual_offered_gpu_seconds_total",] > 2
    assert all(value == value for value in samples.values())  # none is NaN


async def test_two_gateways_see_each_others_work_on_a_pod(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    theirs = {"id": "other-gateway", "prompt_tokens": 3, "generated": 0, "max_tokens": 100}
    pod = await start_pod(slots=2, foreign=[theirs, theirs | {"id": "another"}], told_step=0.01)
    stand = await start_gateway(pod, mode="Bounded", queue={"maximumRequests": 0})
    assert (await ask(stand, 2, 20_000))[1]["code"] == "queue_full"
    pod.foreign = []
    await stand.until(lambda: stand.gateway.scheduler.ledger.all_pods[0].free_slots == 2)
    assert (await ask(stand, 2, 20_000))[0] == 200
