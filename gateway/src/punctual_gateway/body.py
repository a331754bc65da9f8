"""Reading a request's body: bounded in size and in time, before anything is taken for it."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError
from multidict import istr

from punctual_gateway.errors import RequestError

_EXPECT = istr("Expect")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def check_length(http: web.BaseRequest, maximum: int) -> int:
    """The length that a body says it has; raises RequestError when it is too long.

    Zero where it says none.
    """
    length = http.content_length or 0
    if length > maximum:
        raise _too_large(maximum)
    return length


async def read_body(http: web.BaseRequest, maximum: int, timeout: float) -> bytes:
    """The whole body; raises RequestError when it is too long, too slow or broken."""
    content = http.content
    if content.is_eof() and not http.headers.get(_EXPECT):
        # It came with the headers, as small bodies do.
        body = _now(http)
    else:
        body = await _wait(http, maximum, timeout)
    if len(body) > maximum:
        raise _too_large(maximum)
    return body


def _now(http: web.BaseRequest) -> bytes:
    try:
        return http.content.read_nowait()
    except (RequestPayloadError, ValueError) as error:
        raise _broken(error) from error


async def _wait(http: web.BaseRequest, maximum: int, timeout: float) -> bytes:
    if http.headers.get(_EXPECT, "").lower() == "100-continue" and http.transport is not None:
        http.transport.write(_CONTINUE)
    body = bytearray()
    try:
        async with asyncio.timeout(timeout):
            while (piece := await http.content.readany()) and len(body) <= maximum:
                body += piece
    except TimeoutError:
        raise RequestError(
            408, f"the body must be sent within {timeout:g} seconds", code="body_timeout"
        ) from None
    except (RequestPayloadError, ValueError) as error:
        raise _broken(error) from error
    if len(body) > maximum:
        raise _too_large(maximum)
    return bytes(body)


def _too_large(maximum: int) -> RequestError:
    return RequestError(413, f"the body must be at most {maximum} bytes", code="body_too_large")


def _broken(error: Exception) -> RequestError:
    return RequestError(400, f"the body must follow its headers: {error}", code="invalid_body")
