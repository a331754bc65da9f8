"""One call to one pod: what goes out, what comes back, and how pods fail.

A call is never sent twice here: one dispatch is at most one execution.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import orjson

from punctual_gateway.connections import Address, Connections
from punctual_gateway.sse import Event, EventReader, StreamError
from punctual_gateway.wire import PodConnection, WireError

LONGEST_ERROR = 65_536
"""Bytes that are read of an error's body."""
PASSED_HEADERS = ("Authorization", "traceparent", "tracestate", "baggage")
"""Request headers that a pod gets as the client sent them."""


class Fault(StrEnum):
    """How a pod fails; the `code` of the error that the client gets."""

    UNREACHABLE = "upstream_unreachable"
    """No connection."""
    RESET = "upstream_reset"
    """The connection ended before the answer did."""
    INVALID = "upstream_invalid_answer"
    """It answered something that is no completion."""
    ERROR = "upstream_error"
    """It said so itself."""


class UpstreamError(Exception):
    """The pod failed; `answered` says whether any of the answer had come."""

    def __init__(self, fault: Fault, message: str, *, answered: bool = False) -> None:
        super().__init__(message)
        self.fault = fault
        self.answered = answered


class Declined(Exception):  # noqa: N818  # a pod's right, not a fault
    """The pod sent the call back undone: it cannot make it in time, is not ready, or is full."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Rejection(Exception):  # noqa: N818  # the client's error, not the pod's
    """The pod calls the request wrong (4xx); the client gets to see its words."""

    def __init__(self, status: int, body: bytes, code: str | None) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.code = code


class Upstream:
    """One call to one pod: `open` it, `read` until nothing comes, `close` it in any case."""

    def __init__(self, connections: Connections, address: Address) -> None:
        self._connections = connections
        self._address = address
        self._connection: PodConnection | None = None
        self._events = EventReader()
        self._answered = False
        self._said_all = False

    async def open(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send the call and read the head of the answer.

        Raises Declined, Rejection or UpstreamError.
        """
        connection = self._connection = await self._connect()
        try:
            await connection.send(build_request(self._address, path, body, headers))
            self._answered = True
            if connection.status != 200:
                raise await _read_error(connection)
        except (WireError, OSError) as error:
            raise self._fault(error) from error
        kind = connection.headers.get("content-type", "")
        if not kind.startswith("text/event-stream"):
            raise UpstreamError(Fault.INVALID, f"the pod must stream, it sent {kind[:80]}")

    async def read(self) -> list[Event]:
        """The next events, as many as came together; none at the end. Raises UpstreamError."""
        if self._connection is None:
            raise RuntimeError("the call must be open")
        try:
            while data := await self._connection.read():
                if events := self._events.feed(data):
                    self._said_all = events[-1].done
                    return events
        except (WireError, OSError) as error:
            raise self._fault(error) from error
        except StreamError as error:
            raise UpstreamError(Fault.INVALID, str(error), answered=True) from error
        return []

    def close(self) -> None:
        """Give the connection back when the answer was read to its end, and close it otherwise."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._connections.give_back(self._address, connection, said_all=self._said_all)

    async def _connect(self) -> PodConnection:
        idle = self._connections.try_reuse(self._address)
        if idle is not None:
            return idle
        try:
            return await self._connections.connect(self._address)
        except OSError as error:
            raise UpstreamError(Fault.UNREACHABLE, "the pod cannot be reached") from error

    def _fault(self, error: Exception) -> UpstreamError:
        if isinstance(error, WireError):
            return UpstreamError(Fault.INVALID, str(error), answered=True)
        return UpstreamError(
            Fault.RESET, "the pod's connection ended early", answered=self._answered
        )


def build_request(address: Address, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """The bytes of one POST; header values come from a parsed request and hold no line breaks."""
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    head = (
        f"POST {address.prefix}{path} HTTP/1.1\r\nHost: {address.authority}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{fields}\r\n"
    )
    return head.encode("utf-8", "surrogateescape") + body


async def _read_error(connection: PodConnection) -> Exception:
    status, body = connection.status, b""
    while len(body) < LONGEST_ERROR and (piece := await connection.read()):
        body += piece
    error = _error_of(body)
    code, kind = error.get("code"), error.get("type")
    if status in (503, 429):
        return Declined(code if isinstance(code, str) else str(kind or "overloaded"))
    if 400 <= status < 500 and error:
        return Rejection(status, body, code if isinstance(code, str) else None)
    message = error.get("message")
    said = f": {message}" if isinstance(message, str) else ""
    return UpstreamError(Fault.ERROR, f"the pod answered {status}{said}")


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        error = orjson.loads(body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}
