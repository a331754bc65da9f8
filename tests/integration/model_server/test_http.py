"""The HTTP face over real sockets: answers, streams, refusals."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import aiohttp
import pytest

from support.model_server import ModelServer

BODY = {"model": "gpt2-tiny", "prompt": "hello", "max_tokens": 12, "temperature": 0}


async def post(
    client: aiohttp.ClientSession,
    server: ModelServer,
    body: Any,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any, Any]:
    data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
    async with client.post(server.url + "/v1/completions", data=data, headers=headers) as answer:
        return answer.status, await answer.json(content_type=None), answer.headers


async def stream(
    client: aiohttp.ClientSession,
    server: ModelServer,
    body: dict[str, Any],
    headers: dict[str, str] | None = None,
) -> list[Any]:
    """Return the events; the last is the string of the end mark."""
    body = body | {"stream": True}
    async with client.post(server.url + "/v1/completions", json=body, headers=headers) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        events = (await answer.text()).strip().split("\n\n")
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    return [json.loads(event[6:]) for event in events[:-1]]


async def test_an_answer_names_model_and_instance_and_keeps_the_callers_id(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    status, answer, headers = await post(client, torch_server, BODY, {"X-Request-Id": "mine-1"})
    assert status == 200
    assert headers["X-Punctual-Model"] == "gpt2-tiny"
    assert headers["X-Punctual-Instance"] == torch_server.capacity()["instance"]
    assert headers["X-Request-Id"] == "mine-1"
    assert answer["id"] == "cmpl-mine-1"


async def test_a_stream_has_one_chunk_for_each_token_and_says_why_it_ended(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    options = {"stream_options": {"include_usage": True}, "ignore_eos": True}
    events = await stream(client, torch_server, BODY | options)
    reasons = [event["choices"][0]["finish_reason"] for event in events[:-1]]
    assert reasons == [None] * 11 + ["length"]
    assert events[-1]["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 12,
        "total_tokens": 17,
    }
    assert events[-1]["choices"] == []


async def test_streamed_and_whole_answers_are_the_same_text(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    body = BODY | {"max_tokens": 40, "return_token_ids": True, "ignore_eos": True}
    _, whole, _ = await post(client, torch_server, body)
    choices = [event["choices"][0] for event in await stream(client, torch_server, body)]
    assert "".join(c["text"] for c in choices) == whole["choices"][0]["text"]
    assert [t for c in choices for t in c["token_ids"]] == whole["choices"][0]["token_ids"]


async def test_concurrent_answers_equal_the_ones_given_alone(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    bodies = [
        BODY
        | {"prompt": "x" * n, "max_tokens": 5 + n, "ignore_eos": True, "return_token_ids": True}
        for n in range(1, 13)
    ]
    alone = [(await post(client, torch_server, body))[1] for body in bodies]
    together = await asyncio.gather(*(post(client, torch_server, body) for body in bodies))
    for one, (_, other, _) in zip(alone, together, strict=True):
        assert one["choices"][0]["token_ids"] == other["choices"][0]["token_ids"]


async def test_a_stop_string_ends_the_answer_and_frees_the_slot(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    body = BODY | {"max_tokens": 60, "ignore_eos": True}
    _, whole, _ = await post(client, torch_server, body)
    text = whole["choices"][0]["text"]
    stop = text[10:13]
    expected = text[: text.index(stop)]
    _, cut, _ = await post(client, torch_server, body | {"stop": [stop, "never there"]})
    assert cut["choices"][0]["text"] == expected
    assert cut["choices"][0]["finish_reason"] == "stop"
    assert cut["usage"]["completion_tokens"] < 60
    events = await stream(client, torch_server, body | {"stop": stop})
    assert "".join(event["choices"][0]["text"] for event in events) == expected
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    torch_server.wait_idle()


async def test_the_same_seed_gives_the_same_answer(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    body = BODY | {"temperature": 1.3, "top_p": 0.9, "seed": 5, "return_token_ids": True}
    first, second = [(await post(client, torch_server, body))[1] for _ in range(2)]
    assert first["choices"] == second["choices"]


async def test_the_end_token_ends_the_answer_with_stop(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    body = {"prompt": "a", "max_tokens": 900, "temperature": 2, "return_token_ids": True}
    answers = await asyncio.gather(
        *(post(client, torch_server, body | {"seed": seed}) for seed in range(6))
    )
    ended = [a["choices"][0] for _, a, _ in answers if a["choices"][0]["finish_reason"] == "stop"]
    assert ended
    assert all(choice["token_ids"][-1] == 256 for choice in ended)
    assert all(256 not in choice["token_ids"][:-1] for choice in ended)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "invalid_json"),
        (b'{"prompt": NaN}', 400, "invalid_json"),
        (BODY | {"max_tokens": 0}, 400, None),
        (BODY | {"max_tokens": 1020}, 400, "context_length_exceeded"),
        (BODY | {"prompt": "x" * 500_000}, 400, "context_length_exceeded"),
        (BODY | {"prompt": [257]}, 400, None),
        (BODY | {"model": "gpt-5"}, 404, "model_not_found"),
        (BODY | {"n": 2}, 400, None),
        (b" " * ((1 << 20) + 1), 413, "body_too_large"),
    ],
)
async def test_bad_input_gets_the_error_envelope(
    client: aiohttp.ClientSession, torch_server: ModelServer, body: Any, status: int, code: str
) -> None:
    got, answer, headers = await post(client, torch_server, body)
    assert got == status
    assert set(answer["error"]) >= {"message", "type", "param", "code"}
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["code"] == code
    assert headers["X-Punctual-Instance"]


async def test_unknown_paths_and_methods_get_the_envelope(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    async with client.get(torch_server.url + "/v1/nothing") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (404, "not_found")
    async with client.get(torch_server.url + "/v1/completions") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (
            405,
            "method_not_allowed",
        )
        assert "POST" in answer.headers["Allow"]


async def test_a_long_prompt_is_answered_as_a_short_one(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    """It is tokenized beside the event loop."""
    body = BODY | {"prompt": "a" * 900, "max_tokens": 2}
    status, answer, _ = await post(client, torch_server, json.dumps(body).encode() + b" " * 8000)
    assert (status, answer["usage"]["prompt_tokens"]) == (200, 900)


async def test_a_chunked_body_over_the_cap_is_refused(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    async def pieces() -> Any:
        for _ in range(40):
            yield b" " * 65536

    async with client.post(torch_server.url + "/v1/completions", data=pieces()) as answer:
        assert answer.status == 413
        assert (await answer.json())["error"]["code"] == "body_too_large"


async def test_a_body_that_does_not_come_is_a_408_and_holds_nothing(
    sim_server: ModelServer,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", sim_server.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 408 " in head.split(b"\r\n")[0]
    writer.close()
    assert sim_server.capacity()["waiting"] == []


async def test_models_lists_the_one_model(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    async with client.get(torch_server.url + "/v1/models") as answer:
        listing = await answer.json()
    assert [entry["id"] for entry in listing["data"]] == ["gpt2-tiny"]
    assert listing["data"][0]["max_model_len"] == 1024


async def test_health_readiness_and_metrics_answer(
    client: aiohttp.ClientSession, torch_server: ModelServer
) -> None:
    for path in ("/healthz", "/readyz"):
        async with client.get(torch_server.url + path) as answer:
            assert (answer.status, (await answer.json())["state"]) == (200, "ready")
    async with client.get(torch_server.url + "/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert 'vllm:num_requests_running{model_name="gpt2-tiny"}' in await answer.text()


async def test_capacity_follows_the_engine(
    client: aiohttp.ClientSession, sim_server: ModelServer
) -> None:
    sim_server.wait_idle()
    before = sim_server.capacity()
    assert before["step_seconds"] == [0.005, 0.005]
    assert before["prefill_seconds"] == {"base": 0.005, "per_token": 0.0}
    assert (before["slots"], before["drain_seconds"]) == (2, 0.0)
    calls = [
        asyncio.create_task(
            post(client, sim_server, BODY | {"max_tokens": 200}, {"X-Request-Id": f"r{i}"})
        )
        for i in range(3)
    ]
    document: dict[str, Any] = {"running": []}
    while len(document["running"]) < 2 or not document["waiting"]:
        async with client.get(sim_server.url + "/v1/capacity") as answer:
            document = await answer.json()
    assert {r["id"] for r in document["running"] + document["waiting"]} == {"r0", "r1", "r2"}
    assert 0.0 < document["inflight_gpu_seconds"] <= document["drain_seconds"] * 1.01
    assert document["wait_seconds"] < document["drain_seconds"]
    assert document["kv"]["reserved_tokens"] == 3 * (5 + 200)
    assert document["seq"] > before["seq"]
    assert document["age_seconds"] < 5.0
    for call in calls:
        assert (await call)[0] == 200
    assert sim_server.wait_idle()["kv"]["used_tokens"] == 0


async def test_keep_alive_connections_serve_request_after_request(
    sim_server: ModelServer,
) -> None:
    body = json.dumps(BODY | {"max_tokens": 1}).encode()
    request = (
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    ) + body
    reader, writer = await asyncio.open_connection("127.0.0.1", sim_server.port)
    for _ in range(3):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0]
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length")
        )
        await reader.readexactly(length)
    writer.close()
