"""The measuring client against a real server and on broken answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from punctual_lab.load.wire import (
    WireConnection,
    build_request,
    find_answer_end,
    send_burst,
    send_closed_loop,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Serve = Callable[[Handler], Awaitable[str]]


async def echo(request: web.Request) -> web.StreamResponse:
    """Answer with the body sent, chunked when a header asks for it."""
    body = await request.read()
    if "X-Chunked" not in request.headers:
        return web.Response(body=body, headers={"X-Word": "yes"})
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(body)
    await response.write(body)
    return response


async def test_answers_of_known_and_of_chunked_length_are_read(serve: Serve) -> None:
    """One connection carries several exchanges, in both framings."""
    url = await serve(echo)
    link = await WireConnection.open(url)
    try:
        for _ in range(3):
            plain = await link.exchange(build_request(url, b'{"a":1}'))
            assert (plain.status, plain.body) == (200, b'{"a":1}')
            assert plain.header("X-Word") == "yes"
            assert plain.header("X-Absent") is None
            chunked = await link.exchange(build_request(url, b"xyz", headers={"X-Chunked": "1"}))
            assert chunked.body.count(b"xyz") == 2
            assert 0 < plain.seconds < 60
    finally:
        link.close()


async def test_a_burst_is_in_flight_all_at_once(serve: Serve) -> None:
    """Each request of a burst is sent before any is answered."""
    all_here = asyncio.Barrier(30)

    async def handle(request: web.Request) -> web.StreamResponse:
        await request.read()
        await all_here.wait()
        return web.Response(status=503)

    url = await serve(handle)
    answers = await send_burst(url, [build_request(url, b"{}")] * 30)
    assert [answer.status for answer in answers] == [503] * 30


async def test_a_closed_loop_keeps_each_connection_busy(serve: Serve) -> None:
    """Answers come from all connections until the time is up."""
    url = await serve(echo)
    answers = await send_closed_loop(url, build_request(url, b"{}"), connections=4, seconds=0.1)
    assert len(answers) >= 4
    assert {answer.status for answer in answers} == {200}


async def test_a_server_that_closes_fails_the_request(serve: Serve) -> None:
    """A cut connection is an error for the request in flight and for the next one."""

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    url = await serve(handle)
    link = await WireConnection.open(url)
    with pytest.raises(ConnectionError):
        await link.exchange(build_request(url, b"{}"))
    with pytest.raises(ConnectionResetError, match="closed the connection"):
        link.send(build_request(url, b"{}"))


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Le", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", None),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabHTTP", 40),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na", None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 52),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 27),
    ],
)
def test_the_end_of_an_answer_is_found(data: bytes, end: int | None) -> None:
    """Head, length and chunks decide where an answer ends."""
    assert find_answer_end(bytearray(data)) == end


async def test_the_bare_handler_refuses_every_post(bare_refuser: str) -> None:
    """The constant server is what refusals are compared with: a 503 with an error body."""
    request = build_request(bare_refuser, b'{"model": "lab"}')
    answers = await send_burst(bare_refuser, [request] * 3)
    assert {answer.status for answer in answers} == {503}
    assert all(b'"overloaded"' in answer.body for answer in answers)
    assert answers[0].header("Retry-After") == "1"
