"""Lengths of answers, learned over real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway_stand.fake_pod import DONE, begin, stop_at_deadline, token_event
from punctual_admission.output_length import ENOUGH, NEIGHBOURS

if TYPE_CHECKING:
    from aiohttp import web

    from gateway_stand.fake_pod import FakePod
    from gateway_stand.stand import Stand
    from integration.gateway.conftest import StartGateway, StartPod

LEARNED = {"outputLength": "Learned"}


async def answer_ten(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Ten tokens, whatever was asked for."""
    answer = await begin(http)
    for index in range(10):
        await answer.write(token_event("a ", "stop" if index == 9 else None))
    await answer.write(DONE)
    await answer.write_eof()
    return answer


async def teach(stand: Stand, headers: dict[str, str]) -> None:
    """Let enough requests of at most 40 tokens end."""
    for _ in range(ENOUGH):
        async with stand.complete(40, headers=headers) as response:
            assert response.status == 200


async def test_pod_is_told_what_was_learned_of_the_callers_tier(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """The maximum at first, then the median; another tier starts anew."""
    pod = await start_pod(behaviour=answer_ten)
    stand = await start_gateway(pod, estimate=LEARNED, tiers=[{"name": "chat"}, {"name": "code"}])
    chat = {"X-Punctual-Tier": "chat"}
    await teach(stand, chat)
    for headers in (chat, {"X-Punctual-Tier": "code"}):
        async with stand.complete(40, headers=headers) as response:
            assert response.status == 200
    told = [headers["X-Punctual-Expected-Tokens"] for headers in pod.headers]
    assert (told[0], told[-2], told[-1]) == ("40", "10", "40")
    await stand.settle()


async def test_state_shows_what_was_learned(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """By group and size, in `/stats` and in `/metrics`."""
    pod = await start_pod(behaviour=answer_ten)
    stand = await start_gateway(pod, estimate=LEARNED)
    await teach(stand, {})
    (known,) = (await stand.stats())["estimator"]["lengths"]
    assert known == {
        "group": known["group"],
        "maximum_tokens": 63,
        "records": ENOUGH,
        "cold": False,
        "mean_share": 0.25,
        "quantiles": {"0.5": 0.25, "0.9": 0.25, "0.99": 0.25},
    }
    async with stand.client.get(f"{stand.url}/metrics") as response:
        shown = await response.text()
    labels = f'group="{known["group"]}",maximum_tokens="63"'
    assert f"punctual_length_records{{{labels}}} 128.0" in shown
    assert f'punctual_length_share{{{labels},quantile="0.99"}} 0.25' in shown


async def test_nothing_is_told_where_nothing_is_learned(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """The pod then counts on the maximum as the gateway does."""
    pod = await start_pod()
    stand = await start_gateway(pod)
    async with stand.complete() as response:
        assert response.status == 200
    assert "X-Punctual-Expected-Tokens" not in pod.headers[0]
    assert (await stand.stats())["estimator"]["lengths"] == []


async def ask(stand: Stand, deadline_ms: int) -> tuple[int, str | None]:
    """One more of at most 40 tokens: the status, and what the answer says of its promise."""
    async with stand.complete(40, headers={"X-Deadline-Ms": str(deadline_ms)}) as response:
        await response.read()
        return response.status, response.headers.get("X-Punctual-Promise")


async def test_kind_that_became_too_long_comes_back_by_scouts(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """One is let through without a promise: late, many are refused before the next; in time, it is
    followed at once by more, until the kind is known again.
    """
    pod = await start_pod(told_step=1.0)
    certainty = {"lengthCertaintyPercent": 50}
    stand = await start_gateway(pod, estimate=LEARNED | certainty | {"speed": "Fixed"})
    for _ in range(ENOUGH):
        assert await ask(stand, 60_000) == (200, None)
    pod.behaviours = [stop_at_deadline, *[answer_ten] * NEIGHBOURS]
    pod.released.set()
    assert await ask(stand, 20_000) == (504, "none")
    for _ in range(2):
        assert await ask(stand, 20_000) == (503, None)
    assert 10 < int(pod.headers[-1]["X-Punctual-Expected-Tokens"]) <= 20
    for _ in range(NEIGHBOURS // 2):
        assert await ask(stand, 20_000) == (200, "none")
    assert await ask(stand, 20_000) == (200, None)
    async with stand.client.get(f"{stand.url}/metrics") as response:
        shown = await response.text()
    assert f'punctual_length_scouts_total{{outcome="good"}} {NEIGHBOURS // 2}.0' in shown
    assert 'punctual_length_scouts_total{outcome="late"} 1.0' in shown
    assert f'punctual_promises_total{{kept="true"}} {ENOUGH + 1}.0' in shown
    assert 'punctual_promises_total{kept="false"} 0.0' in shown
    assert f"punctual_length_ratio_count {ENOUGH + 1}.0" in shown
    await stand.settle()
