"""Bad input: every kind has its answer, nothing is taken for it, and no pod sees it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import orjson
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway_stand.stand import Stand
    from integration.gateway.conftest import StartGateway, StartPod


async def post(stand: Stand, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """Status and error of a raw body."""
    url = f"{stand.url}/v1/completions"
    async with stand.client.post(url, data=body, headers=headers) as response:
        return response.status, (await response.json()).get("error", {})


def body_with(**fields: Any) -> bytes:
    """A small valid body with some fields changed."""
    return orjson.dumps({"model": "lab", "prompt": [1, 2], "max_tokens": 2} | fields)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "JSON"),
        (b"not json", "JSON"),
        (b"[1,2]", "object"),
        (b'{"model":"lab","prompt":"x","max_tokens":1,"max_tokens":100000}', "'max_tokens'"),
        (b'{"model":"lab","prompt":"x","a":{"b":1,"b":2}}', "'b'"),
        (b'{"model":"lab","prompt":"x" , "prompt" :"y"}', "'prompt'"),
        (b'{"prompt":"x","temperature":NaN}', "JSON"),
        (b'{"prompt":"x","temperature":Infinity}', "JSON"),
        (b'{"prompt":"x","temperature":1e999}', "JSON"),
        (b'{"prompt":"\\ud800"}', "JSON"),
        (b'{"prompt":"\xff"}', "JSON"),
        (b'{"prompt":' + b"[" * 50_000 + b"]" * 50_000 + b"}", "JSON"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "JSON"),
        (body_with(prompt=None), "prompt"),
        (body_with(prompt=[]), "prompt"),
        (body_with(prompt=["a", "b"]), "prompt"),
        (body_with(prompt=[1, "b"]), "prompt"),
        (body_with(prompt=[-1]), "prompt"),
        (body_with(prompt=[True]), "prompt"),
        (body_with(max_tokens=0), "max_tokens"),
        (body_with(max_tokens=-5), "max_tokens"),
        (body_with(max_tokens=2.5), "max_tokens"),
        (body_with(max_tokens="7"), "max_tokens"),
        (body_with(max_tokens=True), "max_tokens"),
        (body_with(n=2), "n must be 1"),
        (body_with(best_of=3), "best_of must be 1"),
        (body_with(stream="yes"), "stream"),
        (body_with(model=5), "model"),
        (body_with(deadline_ms=-1), "deadline_ms"),
        (body_with(deadline_ms=1.5), "deadline_ms"),
        (body_with(deadline_ms="100"), "deadline_ms"),
        (body_with(deadline_ms=True), "deadline_ms"),
    ],
)
async def test_wrong_body_is_a_400_that_names_what_is_wrong(
    start_pod: StartPod, start_gateway: StartGateway, body: bytes, says: str
) -> None:
    pod = await start_pod()
    stand = await start_gateway(pod)
    status, error = await post(stand, body)
    assert status == 400
    assert error["type"] == "invalid_request_error"
    assert says in error["message"]
    assert not pod.calls
    assert stand.outcomes() == {}
    await stand.settle()


POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
DEADLINES = [
    ("", 400), ("abc", 400), ("NaN", 400), ("inf", 400), ("-5", 400), ("1e9", 400), ("5,5", 400),
    ("5.5", 400), ("0x10", 400), ("\u0663", 400), ("9" * 19, 400),
    (" 5000 ", 200), ("9" * 18, 200), ("0", 503),
]  # fmt: skip


@pytest.mark.parametrize(("value", "status"), DEADLINES)
async def test_deadline_header_is_whole_milliseconds_or_an_error(
    start_pod: StartPod, start_gateway: StartGateway, value: str, status: int
) -> None:
    pod = await start_pod()
    stand = await start_gateway(pod)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Deadline-Ms: {value}\r\n"
    assert await raw_status(stand, head.encode(), body_with()) == status
    await stand.settle()


async def test_two_deadline_headers_are_an_error(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod())
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + b"X-Deadline-Ms: 5000\r\n" * 2
    assert await raw_status(stand, head, body_with()) == 400


async def test_smaller_of_two_deadlines_counts(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod())
    for field, header in ((3000, "9000"), (9000, "3000")):
        async with stand.complete(deadline_ms=field, headers={"X-Deadline-Ms": header}) as response:
            assert response.headers["X-Punctual-Deadline-Ms"] == "3000"


async def test_deadline_above_the_maximum_is_clamped_and_said(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod()
    stand = await start_gateway(pod)
    async with stand.complete(deadline_ms=10**17) as response:
        assert response.headers["X-Punctual-Deadline-Ms"] == "60000"
    assert "deadline_ms" not in pod.calls[0]


@pytest.mark.parametrize("mode", ["Unlimited", "Bounded", "Deadline", "Predictive"])
async def test_deadline_of_zero_is_refused_as_unreachable_in_every_mode(
    start_pod: StartPod, start_gateway: StartGateway, mode: str
) -> None:
    pod = await start_pod()
    stand = await start_gateway(pod, mode=mode)
    async with stand.complete(deadline_ms=0) as response:
        assert response.status == 503
        assert response.headers["x-should-retry"] == "false"
        assert (await response.json())["error"]["code"] == "deadline_unreachable"
    assert not pod.calls


async def test_unknown_model_is_a_404(start_pod: StartPod, start_gateway: StartGateway) -> None:
    stand = await start_gateway(await start_pod())
    status, error = await post(stand, body_with(model="other"))
    assert (status, error["code"]) == (404, "model_not_found")


async def test_prompt_that_fills_the_context_is_a_400(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(max_context=8))
    status, error = await post(stand, body_with(prompt=[1] * 8))
    assert (status, error["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/v1/models/other", 404),
        ("GET", "/v1/models/lab", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/healthz", 200),
        ("HEAD", "/healthz", 200),
    ],
)
async def test_routes(
    start_pod: StartPod, start_gateway: StartGateway, method: str, path: str, status: int
) -> None:
    stand = await start_gateway(await start_pod())
    async with stand.client.request(method, stand.url + path) as response:
        assert response.status == status


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/v1/completions", "POST"), ("POST", "/stats", "GET, HEAD")],
)
async def test_wrong_method_is_a_405_that_names_the_right_ones(
    start_pod: StartPod, start_gateway: StartGateway, method: str, path: str, allowed: str
) -> None:
    stand = await start_gateway(await start_pod())
    async with stand.client.request(method, stand.url + path) as response:
        assert (response.status, response.headers["Allow"]) == (405, allowed)
        assert f"must be called with {allowed}" in (await response.json())["error"]["message"]


async def test_body_above_the_cap_is_a_413_and_leaves_the_client_able_to_read_it(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod()
    stand = await start_gateway(pod, requests={"maximumBodyBytes": 2048})
    status, error = await post(stand, body_with(prompt="x" * 100_000))
    assert (status, error["code"]) == (413, "body_too_large")
    assert not pod.calls


async def chunked(pieces: int) -> AsyncIterator[bytes]:
    """A body whose length nobody says."""
    for _ in range(pieces):
        yield b"x" * 1024


async def test_body_without_a_length_is_cut_at_the_cap(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(), requests={"maximumBodyBytes": 2048})
    url = f"{stand.url}/v1/completions"
    async with stand.client.post(url, data=chunked(100)) as response:
        assert response.status == 413


async def test_slow_body_holds_nothing_and_ends_with_408(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(), settings={"body_timeout": 0.1})
    async with connection(stand) as (reader, writer):
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 408 " in head
    await stand.settle()


async def test_long_body_is_not_waited_for_when_every_request_would_be_refused(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(state="starting"))
    async with connection(stand) as (reader, writer):
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n{")
        assert b" 503 " in await reader.readuntil(b"\r\n\r\n")
    assert stand.outcomes() == {"refused": 1}


async def test_expect_continue_is_answered(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod())
    body = body_with()
    async with connection(stand) as (reader, writer):
        writer.write(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(body)
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        POST + b"Content-Length: abc\r\n\r\n",
        POST + b"X: " + b"y" * 20_000 + b"\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    ],
)
async def test_what_is_not_http_is_a_400_and_the_connection_ends(
    start_pod: StartPod, start_gateway: StartGateway, request_bytes: bytes
) -> None:
    stand = await start_gateway(await start_pod())
    async with connection(stand) as (reader, writer):
        writer.write(request_bytes)
        assert b" 400 " in await reader.readuntil(b"\r\n")
        assert await reader.read()
    await stand.settle()


@contextlib.asynccontextmanager
async def connection(
    stand: Stand,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A raw connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def raw_status(stand: Stand, head: bytes, body: bytes) -> int:
    """Status of a request whose head is written as it is."""
    async with connection(stand) as (reader, writer):
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        return int((await reader.readuntil(b"\r\n")).split()[1])
