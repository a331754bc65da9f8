"""What goes back to clients: whole answers in one write, and streams of events.

A refusal has to cost less than the work it saves, so a whole answer is put together as bytes and
written at once, past `web.Response` and its header dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time

JSON = "application/json"
Headers = Iterable[tuple[str, str]]
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus
} | {499: "HTTP/1.1 499 Client Closed Request\r\n"}


class WholeAnswer(web.StreamResponse):
    """A complete answer; header values must not hold line breaks."""

    def __init__(
        self,
        status: int,
        body: bytes,
        headers: Headers = (),
        content_type: str = JSON,
        *,
        close: bool = False,
    ) -> None:
        # The base class would build dictionaries that nothing here reads.
        self._status = status
        self._payload = body
        self._fields = headers
        self._kind = content_type
        self._closes = close

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write everything; raises ConnectionResetError when the client has gone."""
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has gone")
        keep_alive = self._keep_alive = request.keep_alive and not self._closes
        transport.write(
            self.head(keep_alive) + (b"" if request.method == "HEAD" else self._payload)
        )
        if request.protocol.writing_paused:  # it asks for more than it reads
            await request.writer.drain()
        return None

    def head(self, keep_alive: bool) -> bytes:
        """Status line and headers."""
        fields = "".join([f"{name}: {value}\r\n" for name, value in self._fields])
        return (
            f"{_STATUS_LINES[self._status]}Content-Type: {self._kind}\r\n"
            f"Content-Length: {len(self._payload)}\r\nDate: {rfc822_formatted_time()}\r\n"
            f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n{fields}\r\n"
        ).encode("latin-1")

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing: all has been written."""

    @property
    def keep_alive(self) -> bool | None:
        """Whether the connection stays open."""
        return self._keep_alive


class EventStream(web.StreamResponse):
    """A stream of server-sent events, each written as it comes."""

    def __init__(self, headers: Headers) -> None:
        super().__init__(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
            | dict(headers)
        )
        self.headers["X-Accel-Buffering"] = "no"

    def abort(self, request: web.BaseRequest) -> None:
        """Close without the end mark, so that no client takes the answer for complete."""
        transport = request.transport
        if transport is not None:
            transport.close()
