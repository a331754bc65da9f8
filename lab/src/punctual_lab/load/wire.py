"""A minimal HTTP/1.1 client for measurements: prebuilt bytes out, one answer in, little of its own.

A client library spends more on a request than the servers measured here do on a refusal; thirty
requests sent by it at once mostly measure the client. Here a request is one write of bytes made
beforehand, and the end of its answer is stamped when its last bytes arrive.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:\s*chunked", re.IGNORECASE)
_HEADER_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class WireAnswer:
    """An answer: status, seconds from write to last byte, and the raw bytes of head and body."""

    status: int
    seconds: float
    head: bytes
    body: bytes

    def header(self, name: str) -> str | None:
        """Return a header's value, None when absent."""
        found = re.search(rb"\r\n" + name.encode() + rb":\s*([^\r]*)", self.head, re.IGNORECASE)
        return None if found is None else found[1].decode("latin-1")


class WireConnection(asyncio.Protocol):
    """One keep-alive connection that has at most one request in flight."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._sent_at = 0.0
        self._waiter: asyncio.Future[WireAnswer] | None = None

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect to the host and port of a URL."""
        parts = urlsplit(url)
        host, port = parts.hostname or "127.0.0.1", parts.port or 80
        _, connection = await asyncio.get_running_loop().create_connection(cls, host, port)
        return connection

    async def exchange(self, request: bytes) -> WireAnswer:
        """Send a request and return its answer. Raises ConnectionError if the server closes."""
        return await self.send(request)

    def send(self, request: bytes) -> asyncio.Future[WireAnswer]:
        """Write a request now; the future holds its answer."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the server closed the connection")
        self._waiter = asyncio.get_running_loop().create_future()
        self._sent_at = time.perf_counter()
        self._transport.write(request)
        return self._waiter

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (called by the event loop)."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        """Collect bytes until the answer is whole (called by the event loop)."""
        self._buffer += data
        end = find_answer_end(self._buffer)
        if end is None or self._waiter is None or self._waiter.done():
            return
        seconds = time.perf_counter() - self._sent_at
        answer = bytes(self._buffer[:end])
        del self._buffer[:end]
        head, _, body = answer.partition(_HEADER_END)
        self._waiter.set_result(WireAnswer(int(head[9:12]), seconds, head, body))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the request in flight (called by the event loop)."""
        if self._waiter is not None and not self._waiter.done():
            message = "the server closed the connection before its answer was whole"
            self._waiter.set_exception(error or ConnectionResetError(message))


def find_answer_end(buffer: bytearray) -> int | None:
    """Return where the first answer in the buffer ends, None while it is not whole.

    Knows Content-Length and chunked bodies without trailers; an answer with neither has no body.
    """
    head_end = buffer.find(_HEADER_END)
    if head_end < 0:
        return None
    start = head_end + len(_HEADER_END)
    length = _LENGTH.search(buffer, 0, head_end)
    if length is not None:
        end = start + int(length[1])
        return end if len(buffer) >= end else None
    if _CHUNKED.search(buffer, 0, head_end):
        last = buffer.find(b"\r\n0\r\n\r\n", start - 2)
        return None if last < 0 else last + 7
    return start


def build_request(
    url: str, body: bytes, path: str = "/v1/completions", headers: dict[str, str] | None = None
) -> bytes:
    """Build the bytes of a POST with a JSON body."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    return "\r\n".join(lines).encode() + _HEADER_END + body


async def send_burst(url: str, requests: Sequence[bytes]) -> list[WireAnswer]:
    """Open one connection a request, then write all requests at once; return all answers."""
    connections = [await WireConnection.open(url) for _ in requests]
    try:
        pairs = zip(connections, requests, strict=True)
        return list(await asyncio.gather(*[link.send(request) for link, request in pairs]))
    finally:
        for connection in connections:
            connection.close()


async def send_closed_loop(
    url: str, request: bytes, *, connections: int, seconds: float
) -> list[WireAnswer]:
    """Send the request over and over on each connection for so long; return all answers."""
    links = [await WireConnection.open(url) for _ in range(connections)]
    limit = time.perf_counter() + seconds
    try:
        results = await asyncio.gather(*(_repeat(link, request, limit) for link in links))
    finally:
        for link in links:
            link.close()
    return [answer for answers in results for answer in answers]


async def _repeat(link: WireConnection, request: bytes, limit: float) -> list[WireAnswer]:
    answers = []
    while time.perf_counter() < limit:
        answers.append(await link.exchange(request))
    return answers
