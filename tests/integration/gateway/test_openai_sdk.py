"""The official client library, unchanged, in front of the gateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import openai
import pytest

from gateway_stand import fake_pod

if TYPE_CHECKING:
    from gateway_stand.stand import Stand
    from integration.gateway.conftest import StartGateway, StartPod


def client_of(stand: Stand, retries: int = 0) -> openai.AsyncOpenAI:
    """A client of the gateway."""
    return openai.AsyncOpenAI(base_url=f"{stand.url}/v1", api_key="none", max_retries=retries)


async def test_completion(start_pod: StartPod, start_gateway: StartGateway) -> None:
    stand = await start_gateway(await start_pod())
    async with client_of(stand) as client:
        answer = await client.completions.create(model="lab", prompt="hello", max_tokens=3)
    assert answer.choices[0].text == "t0 t1 t2 "
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


async def test_streaming_with_usage(start_pod: StartPod, start_gateway: StartGateway) -> None:
    stand = await start_gateway(await start_pod())
    async with client_of(stand) as client:
        stream = await client.completions.create(
            model="lab",
            prompt="hello",
            max_tokens=3,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == "t0 t1 t2 "
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 6


async def test_models(start_pod: StartPod, start_gateway: StartGateway) -> None:
    stand = await start_gateway(await start_pod())
    async with client_of(stand) as client:
        assert [model.id async for model in client.models.list()] == ["lab"]
        assert (await client.models.retrieve("lab")).owned_by == "punctual"


async def test_refusal_that_no_retry_can_change_is_not_retried(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(told_step=0.1))
    async with client_of(stand, retries=3) as client:
        with pytest.raises(openai.InternalServerError) as refused:
            await client.completions.create(
                model="lab", prompt="x", max_tokens=100, extra_headers={"X-Deadline-Ms": "100"}
            )
    assert refused.value.code == "deadline_unreachable"
    assert refused.value.type == "overloaded"
    assert stand.outcomes() == {"refused": 1}


async def test_refused_client_comes_back_when_told_and_gets_its_answer(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """Its own retry waits as long as the headers say, by which time the slot is free."""
    pod = await start_pod(slots=1, told_prefill=0.3, behaviours=[fake_pod.stop_at_deadline])
    stand = await start_gateway(pod, mode="Bounded", queue={"maximumRequests": 0})
    async with client_of(stand) as first, client_of(stand, retries=2) as second:
        running = asyncio.create_task(
            first.completions.create(model="lab", prompt="x", max_tokens=2)
        )
        await pod.wait_active(1)
        waiting = asyncio.create_task(
            second.completions.create(model="lab", prompt="y", max_tokens=2)
        )
        await stand.until(lambda: "refused" in stand.outcomes())
        pod.released.set()
        assert (await waiting).choices[0].text == "t0 t1 "
        with pytest.raises(openai.InternalServerError):
            await running
    await stand.settle()


async def test_offered_work_counts_a_retried_request_once(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod())
    headers = {"x-stainless-retry-count": "1"}
    async with stand.complete() as response:
        await response.read()
    once = stand.gateway.offered_work
    assert once > 0
    async with stand.complete(headers=headers) as response:
        await response.read()
    assert stand.gateway.offered_work == once


async def test_closing_a_stream_cancels_the_work(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fake_pod.stall)
    stand = await start_gateway(pod)
    async with client_of(stand) as client:
        stream = await client.completions.create(
            model="lab", prompt="x", max_tokens=100, stream=True
        )
        async for _ in stream:
            break
        await stream.close()
        await pod.wait_idle()
    await stand.settle()
    assert stand.outcomes() == {"cancelled": 1}


async def test_error_in_the_middle_of_a_stream_is_raised(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fake_pod.break_off)
    stand = await start_gateway(pod)
    async with client_of(stand) as client:
        stream = await client.completions.create(model="lab", prompt="x", max_tokens=9, stream=True)
        await anext(stream)
        pod.released.set()
        with pytest.raises(openai.APIError):
            [_ async for _ in stream]
