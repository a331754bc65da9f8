"""Which pods get work: identity, staleness, other servers, discovery."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from gateway_stand import fake_pod
from punctual_gateway.discovery import DnsDiscovery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from gateway_stand.stand import Stand
    from integration.gateway.conftest import StartGateway, StartPod


def available(stand: Stand) -> int:
    """Pods that take work."""
    return len(stand.gateway.scheduler.ledger.pods)


async def pod_shown(stand: Stand, index: int = 0) -> dict[str, Any]:
    """A pod in `/stats`."""
    shown: dict[str, Any] = (await stand.stats())["pods"][index]
    return shown


async def test_address_that_serves_another_model_gets_no_work(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(model="other")
    stand = await start_gateway(pod)
    async with stand.complete() as response:
        assert response.status == 503
    assert "'other'" in (await pod_shown(stand))["problem"]
    assert not pod.calls


async def test_address_reused_by_another_application_is_left_alone(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod()
    stand = await start_gateway(pod)
    pod.model = "other"
    await stand.until(lambda: available(stand) == 0)
    async with stand.complete() as response:
        assert response.status == 503
    assert not pod.calls
    pod.model = "lab"
    await stand.until(lambda: available(stand) == 1)


async def test_restarted_pod_starts_with_its_own_speed(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(ratio=3.0)
    stand = await start_gateway(pod)
    await stand.until(lambda: available(stand) == 1)
    assert (await pod_shown(stand))["speed_ratio"] == 3.0
    pod.instance, pod.ratio = "instance-2", 1.5
    ledger = stand.gateway.scheduler.ledger
    await stand.until(lambda: [p.speed.value for p in ledger.all_pods] == [1.5])
    async with stand.complete() as response:
        assert response.status == 200


async def test_state_that_is_old_is_unknown_and_others_are_not_held_up(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    hanging, well = await start_pod(), await start_pod()
    stand = await start_gateway(hanging, well)
    await stand.until(lambda: available(stand) == 2)
    hanging.capacity_hangs = True
    polls = well.polls
    await stand.until(lambda: available(stand) == 1)
    await stand.until(lambda: well.polls > polls + 3)
    assert next(iter(stand.gateway.scheduler.ledger.pods)).id in f"{well.url}/{well.instance}"
    hanging.capacity_hangs = False
    await stand.until(lambda: available(stand) == 2)


async def test_pod_without_progress_gets_no_new_work(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviours=[fake_pod.hang])
    stand = await start_gateway(pod, settings={"stuck_after": 0.2})
    client = asyncio.create_task(ask(stand))
    await stand.until(lambda: available(stand) == 0)
    shown = await pod_shown(stand)
    assert (shown["problem"], shown["stuck"]) == ("it makes no progress", 1)
    client.cancel()
    await stand.until(lambda: available(stand) == 1)
    assert await ask(stand) == 200


async def ask(stand: Stand) -> int:
    """Status of one request."""
    async with stand.complete() as response:
        await response.read()
        return int(response.status)


async def test_work_of_other_gateways_is_seen_and_own_work_is_not_counted_twice(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    foreign = {"id": "theirs", "prompt_tokens": 3, "generated": 1, "max_tokens": 500}
    pod = await start_pod(slots=1, foreign=[foreign], told_step=0.01)
    stand = await start_gateway(pod)
    async with stand.complete(headers={"X-Deadline-Ms": "1000"}) as response:
        assert response.status == 503
        numbers = (await response.json())["error"]["punctual"]
    assert numbers["predicted_wait_ms"] > 4000
    own = {"id": "ours", "prompt_tokens": 3, "generated": 1, "max_tokens": 500}
    pod.foreign = [own]
    stand.gateway.own_work.sent("ours")
    ledger = stand.gateway.scheduler.ledger
    await stand.until(lambda: not ledger.all_pods[0].foreign)


async def test_report_that_comes_in_many_pieces_is_read_to_its_end(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    entry = {"prompt_tokens": 3, "generated": 1, "max_tokens": 5}
    foreign = [entry | {"id": f"request-{number}"} for number in range(10_000)]
    stand = await start_gateway(await start_pod(foreign=foreign))
    shown = await pod_shown(stand)
    assert (shown["problem"], shown["foreign"]) == (None, 10_000)


async def test_server_without_capacity_is_used_by_the_policys_profile(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    metrics = 'vllm:num_requests_running{model_name="lab"} 2.0\nvllm:num_requests_waiting 1.0\n'
    pod = await start_pod(capacity_status=404, vllm_metrics=metrics)
    stand = await start_gateway(
        pod, backend={"slots": 3, "stepMicroseconds": [1000, 1500]}, mode="Unlimited"
    )
    shown = await pod_shown(stand)
    assert shown["step_seconds"] == [0.001, 0.0015, 0.0015]
    assert (shown["speaks_capacity"], shown["foreign"]) == (False, 3)
    assert shown["max_context"] == 1024
    pod.vllm_metrics = "vllm:num_requests_running 0.0\n"
    await stand.until(lambda: stand.gateway.scheduler.ledger.all_pods[0].free_slots == 3)
    assert await ask(stand) == 200


class Switch:
    """A discovery whose answer a test changes."""

    def __init__(self, *urls: str) -> None:
        self.urls = frozenset(urls)
        self.changed = asyncio.Event()

    def set(self, *urls: str) -> None:
        """Answer something else from now on."""
        self.urls = frozenset(urls)
        self.changed.set()

    async def watch(self) -> AsyncIterator[frozenset[str]]:
        """Yield each answer."""
        while True:
            yield self.urls
            await self.changed.wait()
            self.changed.clear()


async def test_vanished_pods_queued_work_moves_and_its_running_work_goes_on(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    old, new = await start_pod(slots=1, step=0.05), await start_pod(slots=1)
    switch = Switch(old.url)
    stand = await start_gateway(discovery=switch, mode="Unlimited")
    clients = [asyncio.create_task(ask(stand)) for _ in range(4)]
    await stand.until(lambda: len(stand.gateway.scheduler.ledger.queue) == 3)
    switch.set(new.url)
    assert await asyncio.gather(*clients) == [200] * 4
    assert (len(old.calls), len(new.calls)) == (1, 3)
    await stand.settle()


async def test_empty_service_is_an_empty_pool_and_fills_again(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod()
    switch = Switch()
    stand = await start_gateway(discovery=switch)
    async with stand.complete() as response:
        assert response.status == 503
    switch.set(pod.url)
    await stand.until(lambda: available(stand) == 1)
    assert await ask(stand) == 200


async def test_dns_gives_addresses_and_tells_no_such_name_from_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    discovery = DnsDiscovery("pods.test:8000", 1.0)
    answers: list[Any] = [
        [(socket.AF_INET, 0, 0, "", ("10.0.0.7", 8000)), (socket.AF_INET6, 0, 0, "", ("fd::7", 1))],
        socket.gaierror(socket.EAI_NONAME, "no such name"),
        socket.gaierror(socket.EAI_AGAIN, "try again"),
        OSError("network is down"),
    ]

    async def getaddrinfo(*_: Any, **__: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    found = {"http://10.0.0.7:8000", "http://[fd::7]:8000"}
    assert await discovery.try_resolve() == frozenset(found)
    assert await discovery.try_resolve() == frozenset()
    assert await discovery.try_resolve() is None
    assert await discovery.try_resolve() is None


async def test_dns_pool_follows_a_real_name(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod()
    port = pod.url.rsplit(":", 1)[1]
    stand = await start_gateway(discovery=DnsDiscovery(f"localhost:{port}", 0.1))
    await stand.until(lambda: available(stand) >= 1)
    assert await ask(stand) == 200
