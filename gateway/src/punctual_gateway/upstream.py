"""One pod's HTTP side: sends one call, gives the events of its answer.

The connection pool has no limit (a limit would be a second, hidden queue) and no time-outs of its
own (the deadline is ours, to the millisecond). Idle connections are dropped after `KEEP_ALIVE`
seconds, sooner than common servers close them, and a call is never sent twice here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import aiohttp
import orjson

from punctual_gateway.sse import Event, EventReader, StreamError

KEEP_ALIVE = 4.0
CONNECT_TIMEOUT = 2.0
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


def build_session() -> aiohttp.ClientSession:
    """The client session that every pod shares."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=0, limit_per_host=0, keepalive_timeout=KEEP_ALIVE, ttl_dns_cache=5
        ),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept-Encoding"),
        raise_for_status=False,
    )


class Upstream:
    """One call to one pod: `open` it, `read` until nothing comes, `close` it in any case."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._response: aiohttp.ClientResponse | None = None
        self._events = EventReader()
        self._answered = False

    async def open(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Send the call and read the head of the answer.

        Raises Declined, Rejection or UpstreamError.
        """
        try:
            response = await self._session.post(url, data=body, headers=headers)
            self._response = response
            if response.status != 200:
                raise await _read_error(response)
        except (aiohttp.ClientError, OSError) as error:
            raise self._fault(error) from error
        if response.content_type != "text/event-stream":
            raise UpstreamError(
                Fault.INVALID, f"the pod must stream, it sent {response.content_type}"
            )

    async def read(self) -> list[Event]:
        """The next events, as many as came together; none at the end. Raises UpstreamError."""
        if self._response is None:
            raise RuntimeError("the call must be open")
        content = self._response.content
        try:
            while data := await content.readany():
                self._answered = True
                if events := self._events.feed(data):
                    return events
        except (aiohttp.ClientError, OSError) as error:
            raise self._fault(error) from error
        except StreamError as error:
            raise UpstreamError(Fault.INVALID, str(error), answered=True) from error
        return []

    def close(self) -> None:
        """Give the connection back when the answer was read to its end, and close it otherwise."""
        if self._response is not None:
            self._response.close()

    def _fault(self, error: Exception) -> UpstreamError:
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            return UpstreamError(Fault.UNREACHABLE, "the pod cannot be reached")
        message = f"the pod's connection ended early ({type(error).__name__})"
        return UpstreamError(Fault.RESET, message, answered=self._answered)


async def _read_error(response: aiohttp.ClientResponse) -> Exception:
    body = await response.content.read(LONGEST_ERROR)
    error = _error_of(body)
    code, kind = error.get("code"), error.get("type")
    if response.status in (503, 429):
        return Declined(code if isinstance(code, str) else str(kind or "overloaded"))
    if 400 <= response.status < 500 and error:
        return Rejection(response.status, body, code if isinstance(code, str) else None)
    message = error.get("message")
    said = f": {message}" if isinstance(message, str) else ""
    return UpstreamError(Fault.ERROR, f"the pod answered {response.status}{said}")


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        error = orjson.loads(body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}
