"""What clients get: whole answers, streams, and what the headers say of them."""

from __future__ import annotations

from asyncio import create_task, gather
from typing import TYPE_CHECKING

import orjson

from gateway_stand.fake_pod import FakePod, answer_when_released, begin, chat_event, fail_with

if TYPE_CHECKING:
    from typing import Any

    from aiohttp import web

    from integration.gateway.conftest import StartGateway, StartPod


async def test_client_that_does_not_stream_gets_one_body_made_of_the_pods_stream(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod()
    stand = await start_gateway(pod)
    async with stand.complete(3) as response:
        assert response.status == 200
        answer = await response.json()
    assert answer["choices"] == [
        {"index": 0, "logprobs": None, "finish_reason": "length", "text": "t0 t1 t2 "}
    ]
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    assert answer["object"] == "text_completion"
    assert pod.calls[0]["stream"] is True
    assert stand.outcomes() == {"good": 1}
    await stand.settle()


async def test_stream_reaches_the_client_unchanged(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod()
    stand = await start_gateway(pod)
    async with stand.client.post(
        f"{pod.url}/v1/completions", json={"model": "lab", "max_tokens": 3, "stream": True}
    ) as response:
        direct = await response.read()
    async with stand.complete(3, stream=True) as response:
        assert response.content_type == "text/event-stream"
        assert await response.read() == direct
    assert "stream_options" not in pod.calls[-1]


async def test_headers_say_what_was_promised_and_what_it_took(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(told_prefill=0.01, told_step=0.002)
    stand = await start_gateway(pod)
    async with stand.complete(4, headers={"X-Request-Id": "mine", "X-Deadline-Ms": "9000"}) as got:
        headers = got.headers
    assert headers["X-Request-Id"] == "mine"
    assert headers["X-Punctual-Deadline-Ms"] == "9000"
    assert float(headers["X-Queue-Predict-Wait"]) == 0.0
    assert float(headers["X-Punctual-Predicted-Ms"]) >= 16
    assert headers["Server-Timing"].startswith("queue;dur=")
    assert "service;dur=" in headers["Server-Timing"]
    assert pod.headers[0]["X-Request-Id"] == "mine"


async def test_pod_hears_how_many_milliseconds_are_left(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod()
    stand = await start_gateway(pod)
    async with stand.complete(headers={"X-Deadline-Ms": "5000"}) as response:
        assert response.status == 200
    assert 3000 < int(pod.headers[0]["X-Punctual-Remaining-Ms"]) <= 5000


async def test_pod_hears_of_no_deadline_where_overdue_work_is_finished(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod()
    stand = await start_gateway(pod, overdue="Finish")
    async with stand.complete() as response:
        assert response.status == 200
    assert "X-Punctual-Remaining-Ms" not in pod.headers[0]


async def test_clock_of_a_request_starts_at_its_own_first_byte(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """A connection that was idle for longer than the deadline does not use up the next one's."""
    stand = await start_gateway(await start_pod())
    async with stand.complete(1) as response:
        await response.read()
    before = stand.gateway.scheduler.now
    await stand.until(lambda: stand.gateway.scheduler.now > before + 2.2)
    async with stand.complete(1, headers={"X-Deadline-Ms": "2000"}) as response:
        assert response.status == 200


async def test_missing_max_tokens_becomes_the_policys_default_for_both(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod()
    stand = await start_gateway(pod, requests={"defaultMaxTokens": 7})
    body = {"model": "lab", "prompt": "hello"}
    async with stand.client.post(f"{stand.url}/v1/completions", json=body) as response:
        assert (await response.json())["usage"]["completion_tokens"] == 7
    assert pod.calls[0]["max_tokens"] == 7


async def test_max_tokens_beyond_the_context_are_clamped_and_said(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(max_context=20)
    stand = await start_gateway(pod)
    async with stand.complete(100_000) as response:
        assert response.status == 200
        assert response.headers["X-Punctual-Max-Tokens"] == "17"
    assert pod.calls[0]["max_tokens"] == 17


async def test_chat_is_passed_on_and_put_together(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    async def talk(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        answer = await begin(http)
        await answer.write(chat_event({"role": "assistant", "content": ""}))
        await answer.write(chat_event({"content": "Good "}) + chat_event({"content": "day"}))
        await answer.write(chat_event({}, "stop") + b"data: [DONE]\n\n")
        await answer.write_eof()
        return answer

    pod = await start_pod(behaviour=talk)
    stand = await start_gateway(pod)
    body = {"model": "lab", "messages": [{"role": "user", "content": "Hi"}]}
    async with stand.client.post(f"{stand.url}/v1/chat/completions", json=body) as response:
        answer = await response.json()
    assert answer["object"] == "chat.completion"
    message = answer["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "Good day"}
    assert answer["choices"][0]["finish_reason"] == "stop"
    await stand.settle()


async def test_refusal_carries_the_numbers_and_the_advice(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(told_step=0.1))
    async with stand.complete(50, headers={"X-Deadline-Ms": "100"}) as response:
        assert response.status == 503
        error = (await response.json())["error"]
        headers = response.headers
    assert (error["type"], error["code"]) == ("overloaded", "deadline_unreachable")
    assert error["param"] is None
    assert error["punctual"]["deadline_ms"] == 100
    assert error["punctual"]["predicted_service_ms"] > 4800
    assert 1 <= int(headers["Retry-After"]) <= 60
    assert int(headers["retry-after-ms"]) > 0
    assert headers["x-should-retry"] == "false"
    assert float(headers["X-Queue-Predict-Wait"]) == 0
    assert stand.outcomes() == {"refused": 1}
    await stand.settle()


async def test_policy_may_ask_for_429_as_the_status_of_overload(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(told_step=0.1), refusals={"overloadStatus": 429})
    async with stand.complete(50, headers={"X-Deadline-Ms": "100"}) as response:
        assert response.status == 429
        assert (await response.json())["error"]["type"] == "overloaded"


async def test_observing_policy_admits_and_says_what_it_would_have_refused(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(told_step=0.1), enforcement="Observe")
    async with stand.complete(50, headers={"X-Deadline-Ms": "100"}) as response:
        assert response.status == 200
        assert response.headers["X-Punctual-Would-Refuse"] == "deadline_unreachable"
    async with stand.client.get(f"{stand.url}/metrics") as response:
        text = await response.text()
    assert 'punctual_would_refuse_total{reason="deadline_unreachable"} 1.0' in text


async def test_burst_of_ten_on_two_slots_and_a_queue_of_four_admits_six(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(slots=2, behaviour=answer_when_released)
    stand = await start_gateway(pod, mode="Bounded", queue={"maximumRequests": 4})

    async def ask() -> int:
        async with stand.complete(2) as response:
            await response.read()
            return int(response.status)

    clients = [create_task(ask()) for _ in range(10)]
    await stand.until(lambda: stand.outcomes() == {"refused": 4})
    pod.released.set()
    statuses = await gather(*clients)
    assert sorted(statuses) == [200] * 6 + [503] * 4
    assert stand.outcomes() == {"good": 6, "refused": 4}
    await stand.settle()


async def test_pods_4xx_reaches_the_client_in_the_pods_words(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(behaviour=fail_with(400, "bad_logprobs", "invalid_request_error"))
    stand = await start_gateway(pod)
    async with stand.complete() as response:
        assert response.status == 400
        assert orjson.loads(await response.read())["error"]["code"] == "bad_logprobs"
    assert len(pod.calls) == 1
    await stand.settle()
