"""Counter-offers, quotas, tiers and memory, from the header to the pod."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gateway_stand import fake_pod

if TYPE_CHECKING:
    from gateway_stand.stand import Stand
    from integration.gateway.conftest import StartGateway, StartPod

ALWAYS = {"counterOffer": "Always"}


async def ask(
    stand: Stand, max_tokens: int = 2, **headers: str
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, body and headers of one request; `_` stands for `-` in a header's name."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    async with stand.complete(max_tokens, headers=sent) as response:
        return response.status, await response.json(), dict(response.headers)


def code(body: dict[str, Any]) -> str:
    """The reason of a refusal."""
    found: str = body["error"]["code"]
    return found


async def test_a_refusal_says_which_answer_and_which_deadline_would_do(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(told_step=0.01, told_prefill=0.01)
    stand = await start_gateway(pod, refusals=ALWAYS)
    status, body, _ = await ask(stand, 200, X_Deadline_Ms="1000")
    numbers = body["error"]["punctual"]
    assert (status, code(body)) == (503, "deadline_unreachable")
    assert 80 <= numbers["max_tokens_on_time"] <= 100
    assert 2000 <= numbers["feasible_deadline_ms"] <= 2500
    again = await ask(stand, 200, X_Deadline_Ms=str(numbers["feasible_deadline_ms"] + 50))
    assert again[0] == 200


async def test_where_nothing_would_do_the_offer_is_null(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(told_prefill=100.0), refusals=ALWAYS)
    numbers = (await ask(stand))[1]["error"]["punctual"]
    assert numbers["max_tokens_on_time"] is None
    assert numbers["feasible_deadline_ms"] is None


async def test_a_client_that_accepts_it_gets_the_shorter_answer(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(told_step=0.01, told_prefill=0.01)
    stand = await start_gateway(pod, refusals=ALWAYS)
    status, body, headers = await ask(stand, 200, X_Deadline_Ms="1000", X_Accept_Shorter="true")
    tokens = int(headers["X-Punctual-Max-Tokens"])
    assert status == 200
    assert headers["X-Punctual-Shortened-From"] == "200"
    assert 80 <= tokens <= 100
    assert pod.calls[0]["max_tokens"] == tokens
    assert body["choices"][0]["finish_reason"] == "length"
    assert stand.outcomes() == {"good": 1}
    assert stand.gateway.metrics.shortened.values[()] == 1


async def test_what_fits_is_not_shortened(start_pod: StartPod, start_gateway: StartGateway) -> None:
    stand = await start_gateway(await start_pod(), refusals=ALWAYS)
    status, _, headers = await ask(stand, 4, X_Accept_Shorter="true")
    assert status == 200
    assert "X-Punctual-Shortened-From" not in headers


@pytest.mark.parametrize("word", ["false", "False"])
async def test_a_client_that_declines_is_refused(
    start_pod: StartPod, start_gateway: StartGateway, word: str
) -> None:
    pod = await start_pod(told_step=0.01)
    stand = await start_gateway(pod, refusals=ALWAYS)
    assert (await ask(stand, 200, X_Deadline_Ms="1000", X_Accept_Shorter=word))[0] == 503
    assert (await ask(stand, 200, X_Deadline_Ms="1000", X_Accept_Shorter="yes"))[0] == 400


async def test_without_counter_offers_the_header_changes_nothing(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(told_step=0.01))
    status, body, _ = await ask(stand, 200, X_Deadline_Ms="1000", X_Accept_Shorter="true")
    assert status == 503
    assert "max_tokens_on_time" not in body["error"]["punctual"]


async def test_a_client_over_its_quota_gets_a_429_and_others_are_served(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    quota = {"requestsPerMinute": 1, "burstSeconds": 1}
    stand = await start_gateway(await start_pod(), quota=quota)
    assert (await ask(stand, Authorization="Bearer a"))[0] == 200
    offered = stand.gateway.offered_work
    status, body, headers = await ask(stand, Authorization="Bearer a")
    assert (status, body["error"]["type"], code(body)) == (
        429, "rate_limited", "client_quota_exceeded",
    )  # fmt: skip
    assert headers["Retry-After"] == "60"
    assert headers["x-should-retry"] == "true"
    assert stand.gateway.offered_work == offered
    assert (await ask(stand, Authorization="Bearer b"))[0] == 200
    assert (await stand.stats())["quota_clients"] == 2


async def test_clients_without_the_header_are_told_apart_by_their_address(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    quota = {"requestsPerMinute": 1, "burstSeconds": 1, "clientHeader": ""}
    stand = await start_gateway(await start_pod(), quota=quota)
    assert (await ask(stand, Authorization="Bearer a"))[0] == 200
    assert (await ask(stand, Authorization="Bearer b"))[0] == 429


async def test_a_long_body_of_a_client_over_its_quota_is_not_waited_for(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    quota = {"requestsPerMinute": 1, "burstSeconds": 1}
    stand = await start_gateway(await start_pod(), quota=quota)
    assert (await ask(stand))[0] == 200
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
    assert b" 429 " in await reader.readline()
    writer.close()


async def test_a_tier_has_its_deadline_and_is_counted(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    tiers = [
        {"name": "interactive", "defaultDeadlineMilliseconds": 1500},
        {"name": "batch", "values": ["nightly"], "budgetMilliseconds": 30_000},
    ]
    stand = await start_gateway(await start_pod(told_step=0.01), tiers=tiers)
    _, _, quick = await ask(stand, X_Punctual_Tier="interactive")
    _, _, slow = await ask(stand, X_Punctual_Tier="nightly", X_Deadline_Ms="50000")
    _, _, plain = await ask(stand, X_Punctual_Tier="batch")
    deadlines = [answer["X-Punctual-Deadline-Ms"] for answer in (quick, slow, plain)]
    assert deadlines == ["1500", "30000", "20000"]
    assert (await ask(stand, 500, X_Punctual_Tier="interactive"))[0] == 503
    none = dict.fromkeys(["good", "late", "refused", "expired", "failed", "cancelled"], 0)
    one = {**none, "good": 1}
    assert (await stand.stats())["tiers"] == {
        "interactive": {**one, "refused": 1}, "batch": one, "": one,
    }  # fmt: skip


async def test_tiers_are_exported_before_anybody_comes(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    tiers = [{"name": "gold", "defaultDeadlineMilliseconds": 1234}]
    stand = await start_gateway(await start_pod(), tiers=tiers)
    counted = (await stand.stats())["tiers"]
    assert {name: sum(outcomes.values()) for name, outcomes in counted.items()} == {
        "": 0,
        "gold": 0,
    }


async def test_another_header_may_name_the_tier(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    tiers = [{"name": "gold", "values": ["team-a"], "defaultDeadlineMilliseconds": 1234}]
    stand = await start_gateway(await start_pod(), tiers=tiers, tierHeader="X-Consumer")
    _, _, headers = await ask(stand, X_Consumer="team-a")
    assert headers["X-Punctual-Deadline-Ms"] == "1234"


async def test_a_request_without_memory_is_refused_and_starts_when_there_is_some(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(memory=100, behaviours=[fake_pod.answer_when_released])
    stand = await start_gateway(pod, memory={"gate": "Enabled"})
    first = asyncio.create_task(ask(stand, 57))
    await pod.wait_active(1)
    status, body, _ = await ask(stand, 98)
    assert (status, code(body)) == (503, "memory_exhausted")
    waiting = asyncio.create_task(ask(stand, 38))
    await stand.until(lambda: len(stand.gateway.scheduler.ledger.queue) == 1)
    shown = (await stand.stats())["pods"][0]
    assert (shown["memory_tokens"], shown["free_memory_tokens"]) == (100, 40)
    pod.released.set()
    assert (await first)[0] == 200
    assert (await waiting)[0] == 200
    await stand.settle()


async def test_memory_of_a_server_without_capacity_is_read_from_its_metrics_or_the_policy(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    told = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="5",engine="0"} 1.0\n'
    memory = {"gate": "Enabled", "bytesPerToken": 1024, "mebibytes": 1}
    tells = await start_pod(capacity_status=404, vllm_metrics=told)
    stand = await start_gateway(tells, memory=memory)
    assert (await stand.stats())["pods"][0]["memory_tokens"] == 80
    assert code((await ask(stand, 78))[1]) == "memory_exhausted"
    tells.vllm_metrics = ""
    ledger = stand.gateway.scheduler.ledger
    await stand.until(lambda: ledger.all_pods[0].memory_tokens == 1024)
