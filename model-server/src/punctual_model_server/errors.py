"""Refusals and failures in OpenAI's error envelope."""

from __future__ import annotations

import math

import orjson
from aiohttp import web


class ApiError(Exception):
    """An answer that is an error.

    `code` names the reason and is stable; `retry_after` is in seconds; `numbers` goes into the
    envelope's `punctual` object.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        numbers: dict[str, float | bool] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.numbers = numbers

    def body(self) -> bytes:
        """Return the JSON envelope."""
        error: dict[str, object] = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        if self.numbers is not None:
            error["punctual"] = self.numbers
        return orjson.dumps({"error": error})

    def response(self, headers: dict[str, str]) -> web.Response:
        """Return the HTTP answer."""
        headers = dict(headers)
        if self.retry_after is not None:
            headers["Retry-After"] = str(min(max(math.ceil(self.retry_after), 1), 60))
        return web.Response(
            status=self.status, body=self.body(), content_type="application/json", headers=headers
        )


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return a 400."""
    return ApiError(400, message, param=param, code=code)


def unavailable(message: str, code: str, retry_after: float = 1.0) -> ApiError:
    """Return a 503 that has nothing to do with this request."""
    return ApiError(503, message, kind="overloaded", code=code, retry_after=retry_after)


def engine_lost() -> ApiError:
    """Return the answer for requests whose engine died."""
    return ApiError(500, "the engine process ended", kind="server_error", code="engine_dead")
