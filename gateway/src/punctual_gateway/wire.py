"""HTTP/1.1 to one pod: as much of a client as passing an answer on needs, and no more.

A general client spends most of a short answer's overhead on headers, cookies and redirects that
nobody here reads. This one sends bytes that are ready, parses the head and the framing strictly
(RFC 9112: a length, chunks, or the end of the connection) and hands the body over as it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import cast

LONGEST_HEAD = 65_536
LONGEST_LINE = 256
"""Bytes of a chunk's size line, extensions included."""
UNREAD_LIMIT = 1_048_576
"""Bytes of body that may wait to be read before the pod is slowed down."""
_HEX = b"0123456789abcdefABCDEF"
_BODILESS = frozenset({204, 304})


class WireError(Exception):
    """What the pod sent is not HTTP/1.1; the message says why."""


class _Phase(Enum):
    IDLE = auto()
    HEAD = auto()
    LENGTH = auto()
    CHUNK_SIZE = auto()
    CHUNK = auto()
    CHUNK_END = auto()
    TRAILER = auto()
    UNTIL_CLOSE = auto()
    DONE = auto()


class PodConnection(asyncio.Protocol):
    """One connection; carries one exchange at a time."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        """Of the present answer, names in lower case."""
        self._transport: asyncio.Transport | None = None
        self._phase = _Phase.IDLE
        self._rest = b""
        self._left = 0
        self._body: list[bytes] = []
        self._size = 0
        self._keep = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._when_over: Callable[[], None] | None = None

    # --- for the caller ----------------------------------------------------------------------

    @property
    def reusable(self) -> bool:
        """Whether another exchange may follow."""
        transport = self._transport
        return (
            self._phase in (_Phase.DONE, _Phase.IDLE)
            and self._error is None
            and transport is not None
            and not transport.is_closing()
        )

    async def send(self, request: bytes) -> None:
        """Send a whole request and wait for the head of its answer.

        Raises ConnectionError when the connection ends, WireError when the answer is not HTTP.
        """
        transport = self._transport
        if transport is None or not self.reusable:
            raise ConnectionResetError("the connection has ended")
        self._phase, self._rest, self._keep = _Phase.HEAD, b"", True
        self._body.clear()
        self._size = 0
        transport.write(request)
        while self._phase is _Phase.HEAD:
            await self._wait()

    async def read(self) -> bytes:
        """The body as far as it has come, at least one byte; empty at its end.

        Raises ConnectionError when the connection ends before the body does, or WireError.
        """
        while not self._body:
            if self._phase is _Phase.DONE:
                return b""
            await self._wait()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        if self._size > UNREAD_LIMIT and self._transport is not None:
            self._transport.resume_reading()
        self._size = 0
        return body

    def when_over(self, call: Callable[[], None]) -> None:
        """Call once when the present answer, or the connection, has ended."""
        self._when_over = call

    def close(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- for the event loop ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports are none by inheritance.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        if self._phase in (_Phase.IDLE, _Phase.DONE):
            # Nobody asked: whatever this is, it must not become the next answer.
            self._error = WireError("the pod sent bytes that no request asked for")
            self.close()
            return
        try:
            self._feed(self._rest + data if self._rest else data)
        except WireError as error:
            self._error = error
            self.close()
        if self._size > UNREAD_LIMIT and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the connection is the end of a body without another end, else a fault."""
        if self._phase is _Phase.UNTIL_CLOSE and exc is None:
            self._phase = _Phase.DONE
        elif self._error is None:
            self._error = exc or ConnectionResetError("the pod closed the connection")
        self._transport = None
        self._wake()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self._when_over is not None and (self._phase is _Phase.DONE or self._error is not None):
            call, self._when_over = self._when_over, None
            call()

    # --- parsing -----------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        before = None
        while data and before != (len(data), self._phase):
            before = (len(data), self._phase)
            data = _STEPS[self._phase](self, data)
        self._rest = data

    def _take_head(self, data: bytes) -> bytes:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > LONGEST_HEAD:
                raise WireError(f"the head must be at most {LONGEST_HEAD} bytes")
            return data
        self.status, self.headers, self._keep = parse_head(data[:end])
        if self.status >= 200:
            self._begin_body()
        return data[end + 4 :]

    def _begin_body(self) -> None:
        coding = self.headers.get("transfer-encoding")
        length = self.headers.get("content-length")
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise WireError("the body must be framed by chunks or by a length")
            self._phase = _Phase.CHUNK_SIZE
        elif length is not None or self.status in _BODILESS:
            self._left = _parse_length(length or "0")
            self._phase = _Phase.LENGTH if self._left else _Phase.DONE
        else:
            self._phase, self._keep = _Phase.UNTIL_CLOSE, False
        self._end_if_done()

    def _take_length(self, data: bytes) -> bytes:
        rest = self._take_piece(data)
        if not self._left:
            self._phase = _Phase.DONE
            self._end_if_done()
        return rest

    def _take_piece(self, data: bytes) -> bytes:
        left = self._left
        piece = data if len(data) <= left else data[:left]
        self._left = left - len(piece)
        self._add(piece)
        return data[len(piece) :]

    def _take_chunk_size(self, data: bytes) -> bytes:
        end = data.find(b"\r\n")
        if end < 0:
            if len(data) > LONGEST_LINE:
                raise WireError(f"the size of a chunk must be at most {LONGEST_LINE} bytes")
            return data
        size = data[:end].partition(b";")[0].strip(b" \t")
        if not 0 < len(size) <= 16 or size.strip(_HEX):
            raise WireError("the size of a chunk must be a hexadecimal number")
        self._left = int(size, 16)
        self._phase = _Phase.CHUNK if self._left else _Phase.TRAILER
        return data[end + 2 :]

    def _take_chunk(self, data: bytes) -> bytes:
        rest = self._take_piece(data)
        if not self._left:
            self._phase = _Phase.CHUNK_END
        return rest

    def _take_chunk_end(self, data: bytes) -> bytes:
        if len(data) < 2 and b"\r\n".startswith(data):
            return data
        if not data.startswith(b"\r\n"):
            raise WireError("a chunk must end where its size says")
        self._phase = _Phase.CHUNK_SIZE
        return data[2:]

    def _take_trailer(self, data: bytes) -> bytes:
        end = 0 if data.startswith(b"\r\n") else data.find(b"\r\n\r\n") + 2
        if end < 2 and not data.startswith(b"\r\n"):
            if len(data) > LONGEST_HEAD:
                raise WireError(f"the trailer must be at most {LONGEST_HEAD} bytes")
            return data
        self._phase = _Phase.DONE
        self._end_if_done()
        return data[end + 2 :]

    def _take_until_close(self, data: bytes) -> bytes:
        self._add(data)
        return b""

    def _refuse_more(self, data: bytes) -> bytes:
        raise WireError(f"the pod sent {len(data)} bytes after its answer")

    def _add(self, piece: bytes) -> None:
        self._body.append(piece)
        self._size += len(piece)

    def _end_if_done(self) -> None:
        if self._phase is _Phase.DONE and not self._keep and self._transport is not None:
            self._transport.close()


_STEPS = {
    _Phase.HEAD: PodConnection._take_head,  # noqa: SLF001  # a table of this class's own methods
    _Phase.LENGTH: PodConnection._take_length,  # noqa: SLF001
    _Phase.CHUNK_SIZE: PodConnection._take_chunk_size,  # noqa: SLF001
    _Phase.CHUNK: PodConnection._take_chunk,  # noqa: SLF001
    _Phase.CHUNK_END: PodConnection._take_chunk_end,  # noqa: SLF001
    _Phase.TRAILER: PodConnection._take_trailer,  # noqa: SLF001
    _Phase.UNTIL_CLOSE: PodConnection._take_until_close,  # noqa: SLF001
    _Phase.DONE: PodConnection._refuse_more,  # noqa: SLF001
}


def parse_head(head: bytes) -> tuple[int, dict[str, str], bool]:
    """Status, headers (names in lower case) and whether the connection stays; raises WireError."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code = rest[:3]
    if version not in ("HTTP/1.1", "HTTP/1.0") or not (code.isascii() and code.isdigit()):
        raise WireError("the answer must begin with an HTTP/1.1 status line")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name[-1] in " \t" or name[0] in " \t":
            raise WireError("each header must be a name, a colon and a value")
        key = name.lower()
        value = value.strip(" \t")
        if key in headers:
            if key in ("content-length", "transfer-encoding") and headers[key] != value:
                raise WireError(f"{name} must occur once")
            value = value if key == "content-length" else f"{headers[key]}, {value}"
        headers[key] = value
    said = headers.get("connection", "").lower()
    keep = said == "keep-alive" if version == "HTTP/1.0" else "close" not in said
    return int(code), headers, keep


def _parse_length(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise WireError("Content-Length must be a whole number")
    return int(text)
