"""Pods that are down, slow, broken or strange: each its own outcome, and nothing is left over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
import pytest

from gateway_stand import fake_pod
from gateway_stand.fake_pod import FakePod, fail_with

if TYPE_CHECKING:
    from gateway_stand.stand import Stand
    from integration.gateway.conftest import StartGateway, StartPod

SHORT = {"X-Deadline-Ms": "1000"}


async def error_of(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The error object of an answer."""
    error: dict[str, Any] = (await response.json())["error"]
    return error


async def finish(stand: Stand, *pods: FakePod, **outcomes: int) -> None:
    """Check outcomes, and that gateway and pods are empty."""
    await stand.settle()
    for pod in pods:
        await pod.wait_idle()
    assert stand.outcomes() == outcomes


async def test_request_without_a_ready_pod_is_refused_at_once(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod()
    await pod.stop()
    stand = await start_gateway(pod)
    async with stand.complete() as response:
        assert response.status == 503
        error = await error_of(response)
    assert (error["type"], error["code"]) == ("no_capacity", "pool_exhausted")
    await finish(stand, refused=1)


async def test_pod_that_starts_later_is_used_from_then_on(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(state="starting")
    stand = await start_gateway(pod)
    async with stand.complete() as response:
        assert response.status == 503
    pod.state = "ready"
    await stand.until(lambda: bool(stand.gateway.scheduler.ledger.pods))
    async with stand.complete() as response:
        assert response.status == 200
    await finish(stand, pod, refused=1, good=1)


async def test_reset_before_the_first_byte_is_tried_on_another_pod(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    broken = await start_pod(behaviour=fake_pod.reset)
    well = await start_pod(told_step=0.01)
    stand = await start_gateway(broken, well)
    async with stand.complete() as response:
        assert response.status == 200
    assert (len(broken.calls), len(well.calls)) == (1, 1)
    await finish(stand, broken, well, good=1)


async def test_reset_after_the_head_is_not_tried_again(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """The pod may have worked on it: one dispatch is at most one execution."""
    broken = await start_pod(behaviour=fake_pod.reset_after_head)
    well = await start_pod(told_step=0.01)
    stand = await start_gateway(broken, well)
    async with stand.complete() as response:
        assert response.status == 502
    assert (len(broken.calls), len(well.calls)) == (1, 0)
    await finish(stand, broken, well, failed=1)


async def test_pod_that_always_resets_gives_502_after_few_tries(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fake_pod.reset)
    stand = await start_gateway(pod)
    async with stand.complete() as response:
        assert response.status == 502
        error = await error_of(response)
    assert (error["type"], error["code"]) == ("upstream_error", "upstream_reset")
    assert len(pod.calls) <= 4
    await finish(stand, pod, failed=1)


async def test_retries_stay_within_a_tenth_of_the_dispatches(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fake_pod.reset)
    stand = await start_gateway(pod)
    for _ in range(40):
        async with stand.complete() as response:
            assert response.status == 502
    assert len(pod.calls) <= 40 + 3 + 40 * 0.1
    await finish(stand, pod, failed=40)


async def test_pod_that_went_away_since_its_last_poll_costs_no_request(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    gone = await start_pod()
    well = await start_pod(told_step=0.01)
    stand = await start_gateway(gone, well, settings={"poll_interval": 30.0})
    await gone.stop()
    async with stand.complete() as response:
        assert response.status == 200
    assert len(well.calls) == 1
    await finish(stand, well, good=1)


async def test_only_pod_unreachable_is_a_502(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    gone = await start_pod()
    stand = await start_gateway(gone, settings={"poll_interval": 30.0})
    await gone.stop()
    async with stand.complete() as response:
        assert response.status == 502
        assert (await error_of(response))["code"] == "upstream_unreachable"
    await finish(stand, failed=1)


async def test_pod_that_hangs_is_cut_at_the_deadline(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fake_pod.hang)
    stand = await start_gateway(pod)
    async with stand.complete(headers=SHORT) as response:
        assert response.status == 504
        error = await error_of(response)
    assert (error["type"], error["code"]) == ("deadline_exceeded", "deadline_exceeded")
    await finish(stand, pod, late=1)


async def test_stream_that_stalls_ends_at_the_deadline_with_an_error_event(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fake_pod.stall)
    stand = await start_gateway(pod)
    async with stand.complete(stream=True, headers=SHORT) as response:
        assert response.status == 200
        seen = await read_broken(response)
    assert b"one " in seen
    last = seen.strip().split(b"\n\n")[-1].removeprefix(b"data: ")
    assert orjson.loads(last)["error"]["type"] == "deadline_exceeded"
    await finish(stand, pod, late=1)


async def read_broken(response: aiohttp.ClientResponse) -> bytes:
    """What comes before the connection breaks; fails when it ends properly."""
    seen = bytearray()
    with pytest.raises(aiohttp.ClientPayloadError):
        await collect(response, seen)
    return bytes(seen)


async def collect(response: aiohttp.ClientResponse, seen: bytearray) -> None:
    """Add what comes, as long as something comes."""
    async for data in response.content.iter_any():
        seen += data


async def test_overdue_work_is_finished_where_the_policy_says_so(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(step=0.3)
    stand = await start_gateway(pod, overdue="Finish")
    async with stand.complete(4, headers=SHORT) as response:
        assert response.status == 200
    await finish(stand, pod, late=1)


@pytest.mark.parametrize("behave", [fake_pod.break_off, fake_pod.end_early])
async def test_answer_that_breaks_off_is_a_502_for_a_client_that_does_not_stream(
    start_pod: StartPod, start_gateway: StartGateway, behave: fake_pod.Behaviour
) -> None:
    pod = await start_pod(behaviour=behave)
    pod.released.set()
    stand = await start_gateway(pod)
    async with stand.complete() as response:
        assert response.status == 502
        assert (await error_of(response))["code"] == "upstream_reset"
    assert len(pod.calls) == 1
    await finish(stand, pod, failed=1)


@pytest.mark.parametrize("behave", [fake_pod.break_off, fake_pod.end_early])
async def test_stream_that_breaks_off_never_looks_complete(
    start_pod: StartPod, start_gateway: StartGateway, behave: fake_pod.Behaviour
) -> None:
    pod = await start_pod(behaviour=behave)
    stand = await start_gateway(pod)
    async with stand.complete(stream=True) as response:
        assert response.status == 200
        pod.released.set()
        seen = await read_broken(response)
    assert b"[DONE]" not in seen
    assert b'"upstream_reset"' in seen
    await finish(stand, pod, failed=1)


@pytest.mark.parametrize("behave", [fake_pod.talk_html, fake_pod.talk_garbage])
@pytest.mark.parametrize("stream", [True, False])
async def test_garbage_is_a_502(
    start_pod: StartPod, start_gateway: StartGateway, behave: fake_pod.Behaviour, stream: bool
) -> None:
    pod = await start_pod(behaviour=behave)
    stand = await start_gateway(pod)
    async with stand.complete(stream=stream) as response:
        assert response.status == 502
        assert (await error_of(response))["code"] == "upstream_invalid_answer"
    assert len(pod.calls) == 1
    await finish(stand, pod, failed=1)


async def test_error_that_the_pod_reports_in_its_stream_is_a_502(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fake_pod.report_error)
    stand = await start_gateway(pod)
    async with stand.complete() as response:
        assert response.status == 502
        error = await error_of(response)
    assert error["code"] == "upstream_error"
    assert "out of memory" in error["message"]
    await finish(stand, pod, failed=1)


async def test_pods_500_is_a_502_and_is_not_sent_again(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fail_with(500, "engine_dead", "server_error"))
    stand = await start_gateway(pod)
    async with stand.complete() as response:
        assert response.status == 502
        assert (await error_of(response))["code"] == "upstream_error"
    assert len(pod.calls) == 1
    await finish(stand, pod, failed=1)


async def test_pods_last_word_puts_the_request_back_into_the_decision(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    full = await start_pod(behaviour=fail_with(503, "deadline_unreachable"))
    well = await start_pod(told_step=0.01)
    stand = await start_gateway(full, well)
    async with stand.complete() as response:
        assert response.status == 200
    assert (len(full.calls), len(well.calls)) == (1, 1)
    await finish(stand, full, well, good=1)


async def test_request_that_every_pod_sends_back_is_dropped(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fail_with(503, "deadline_unreachable"))
    stand = await start_gateway(pod)
    async with stand.complete() as response:
        assert response.status == 503
        error = await error_of(response)
    assert (error["type"], error["code"]) == ("deadline_exceeded", "deadline_exceeded")
    await finish(stand, pod, expired=1)


async def test_draining_pod_gets_nothing_more_until_it_is_ready_again(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    leaving = await start_pod(behaviour=fail_with(503, "draining"))
    staying = await start_pod(told_step=0.01)
    stand = await start_gateway(leaving, staying, settings={"poll_interval": 30.0})
    for _ in range(3):
        async with stand.complete() as response:
            assert response.status == 200
    assert (len(leaving.calls), len(staying.calls)) == (1, 3)
    await finish(stand, leaving, staying, good=3)


async def test_stream_that_the_pod_stops_at_the_deadline_says_so(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fake_pod.stop_at_deadline)
    stand = await start_gateway(pod)
    async with stand.complete(stream=True) as response:
        pod.released.set()
        seen = await response.read()
    assert b'"finish_reason":"deadline"' in seen
    assert seen.endswith(b"data: [DONE]\n\n")
    await finish(stand, pod, late=1)


async def test_answer_that_the_pod_stops_at_the_deadline_is_a_504(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fake_pod.stop_at_deadline)
    pod.released.set()
    stand = await start_gateway(pod)
    async with stand.complete() as response:
        assert response.status == 504
        assert (await error_of(response))["punctual"]["generated_tokens"] == 2
    await finish(stand, pod, late=1)
