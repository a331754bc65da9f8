"""HTTP/1.1 from a pod, in whatever pieces it comes."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual_gateway.wire import PodConnection, WireError, parse_head

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;x=1\r\n world\r\n0\r\nTrailer: 1\r\n\r\n"
)
SIZED = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello world"
OPEN_ENDED = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello world"


class Pipe(asyncio.Transport):
    """A transport that remembers what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False
        self.states: list[bool] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.states.append(True)

    def resume_reading(self) -> None:
        self.states.append(False)


def connected() -> tuple[PodConnection, Pipe]:
    """A connection on such a transport."""
    connection, pipe = PodConnection(), Pipe()
    connection.connection_made(cast("asyncio.BaseTransport", pipe))
    return connection, pipe


async def exchange(connection: PodConnection, pieces: list[bytes], *, ends: bool = False) -> bytes:
    """Send something, feed the pieces, and read the answer to its end."""
    sending = asyncio.ensure_future(connection.send(b"request"))
    await asyncio.sleep(0)
    for piece in pieces:
        connection.data_received(piece)
        await asyncio.sleep(0)
    if ends:
        connection.connection_lost(None)
    await sending
    body = b""
    while data := await connection.read():
        body += data
    return body


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` cut at these places."""
    edges = [0, *sorted({place % len(data) for place in places} - {0}), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(places=st.lists(st.integers(0, 1000), max_size=12), sized=st.booleans())
def test_pieces_make_no_difference(places: list[int], sized: bool) -> None:
    async def play() -> None:
        connection, _ = connected()
        body = await exchange(connection, cut(SIZED if sized else CHUNKED, places))
        assert body == b"hello world"
        assert connection.reusable

    asyncio.run(play())


async def test_second_exchange_on_the_same_connection() -> None:
    connection, pipe = connected()
    assert await exchange(connection, [SIZED]) == b"hello world"
    assert await exchange(connection, [CHUNKED]) == b"hello world"
    assert pipe.written == b"requestrequest"


async def test_body_without_a_length_ends_with_the_connection() -> None:
    connection, _ = connected()
    assert await exchange(connection, [OPEN_ENDED], ends=True) == b"hello world"
    assert not connection.reusable


async def test_interim_answers_are_passed_over() -> None:
    connection, _ = connected()
    assert await exchange(connection, [b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED]) == b"hello world"


async def test_pod_that_asks_to_close_is_not_used_again() -> None:
    connection, pipe = connected()
    answer = SIZED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    assert await exchange(connection, [answer]) == b"hello world"
    assert not connection.reusable
    assert pipe.aborted


async def test_connection_that_ends_early_is_an_error() -> None:
    for answer in (b"", SIZED[:20], SIZED[:-3], CHUNKED[:-5]):
        connection, _ = connected()
        with pytest.raises(ConnectionError):
            await exchange(connection, [answer] if answer else [], ends=True)


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 300,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
    ],
)
async def test_what_is_not_http_is_an_error(answer: bytes) -> None:
    connection, pipe = connected()
    with pytest.raises(WireError):
        await exchange(connection, [answer])
    assert pipe.aborted
    assert not connection.reusable


async def test_bytes_after_the_answer_spoil_the_connection_and_not_the_answer() -> None:
    connection, _ = connected()
    assert await exchange(connection, [SIZED + b"HTTP/1.1 200 OK"]) == b"hello world"
    assert not connection.reusable


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    connection, pipe = connected()
    connection.data_received(SIZED)
    assert pipe.aborted
    with pytest.raises(ConnectionError):
        await connection.send(b"request")


async def test_pod_that_sends_faster_than_its_answer_is_read_is_slowed_down() -> None:
    connection, pipe = connected()
    sending = asyncio.ensure_future(connection.send(b"request"))
    await asyncio.sleep(0)
    connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n")
    connection.data_received(b"x" * 2_000_000)
    await sending
    assert pipe.states == [True]
    assert len(await connection.read()) == 2_000_000
    assert pipe.states == [True, False]
    connection.close()


def test_old_http_stays_open_only_when_it_says_so() -> None:
    assert parse_head(b"HTTP/1.0 200 OK")[2] is False
    assert parse_head(b"HTTP/1.0 200 OK\r\nConnection: keep-alive")[2] is True


def test_repeated_headers_are_joined() -> None:
    assert parse_head(b"HTTP/1.1 200 OK\r\nVary: a\r\nvary: b")[1]["vary"] == "a, b"
