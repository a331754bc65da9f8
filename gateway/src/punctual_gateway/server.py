"""The HTTP side: connections, the clock that starts at a request's first byte, and the routes."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from multidict import istr

from punctual_gateway import errors, openapi, signals, stats
from punctual_gateway.answers import WholeAnswer
from punctual_gateway.call import Route
from punctual_gateway.errors import RequestError
from punctual_gateway.exchange import Exchange
from punctual_gateway.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage
    from aiohttp.streams import StreamReader

    from punctual_gateway.gateway import Gateway

log = logging.getLogger(__name__)

REQUEST_ID = istr("X-Request-Id")
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
KEEP_ALIVE = 75.0
LINGER = 2.0
"""Seconds for which the rest of a refused body is read, so that its client gets to read why."""


class TimedRequest(web.BaseRequest):
    """A request that knows when its first byte came."""

    arrival: float = 0.0


class TimedConnection(RequestHandler):
    """A connection that notes when the first byte of each request comes."""

    __slots__ = ("_body", "_first", "_latest")

    def __init__(self, manager: web.Server, **kwargs: Any) -> None:
        super().__init__(manager, **kwargs)
        self._first: float | None = None
        self._latest = 0.0
        self._body: StreamReader | None = None

    def data_received(self, data: bytes) -> None:
        """Take the time before anything else is done."""
        if data:  # aiohttp calls this with nothing to parse what it has put aside
            self._latest = time.monotonic()
            if self._first is None and (self._body is None or self._body.is_eof()):
                self._first = self._latest
        super().data_received(data)

    def take_arrival(self, body: StreamReader) -> float:
        """When the request that is taken up now began to arrive."""
        arrival = self._latest if self._first is None else self._first
        self._first, self._body = None, body
        return arrival

    def _make_error_handler(self, err_info: Any) -> Callable[[Any], Awaitable[web.StreamResponse]]:
        """What is not HTTP gets our envelope and no stack trace in the log."""
        error = RequestError(err_info.status, f"the request must be HTTP: {err_info.message}")

        async def answer(_: web.BaseRequest) -> web.StreamResponse:
            failure = errors.invalid(error)
            return WholeAnswer(failure.status, failure.body, close=True)

        return answer


class Server(web.Server):
    """Makes timed connections and requests."""

    def __init__(self, gateway: Gateway) -> None:
        self._options: dict[str, Any] = {
            "access_log": None,
            "keepalive_timeout": KEEP_ALIVE,
            "lingering_time": LINGER,
        }
        self._gateway = gateway
        # A client that leaves must end what is done for it: the default is to let it run.
        super().__init__(
            self._handle, request_factory=self._build_request, handler_cancellation=True
        )
        self._gets = {
            "/v1/models": self._models,
            "/healthz": self._healthz,
            "/readyz": lambda: _told("ready", self._gateway.ready),
            "/servingz": lambda: _told("serving", self._gateway.serving),
            "/metrics": self._metrics,
            "/stats": self._stats,
            "/openapi.json": self._openapi,
            "/signals": self._signals,
        }
        self._posts = {route.value: route for route in Route}

    def __call__(self) -> RequestHandler:
        """One connection."""
        return TimedConnection(self, loop=asyncio.get_running_loop(), **self._options)

    def _build_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        if not self._gateway.accepting:  # a client that has to connect again arrives elsewhere
            message = message._replace(should_close=True)
        request = TimedRequest(message, payload, protocol, writer, task, self._loop)
        if isinstance(protocol, TimedConnection):
            request.arrival = protocol.take_arrival(payload)
        return request

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """Find the route; what is wrong with the request becomes its answer."""
        name = self._name(http)
        try:
            return await self._route(http, name)
        except RequestError as error:
            self._gateway.count_invalid(error.status)
            failure = errors.invalid(error)
            close = error.status in (408, 413)
            fields = ((REQUEST_ID, name), *failure.headers)
            return WholeAnswer(failure.status, failure.body, fields, close=close)
        except ConnectionError:
            # The client has gone; the answer's own `prepare` says so to the server.
            return WholeAnswer(499, b"")
        except Exception:  # a fault of ours must not cost the other requests
            log.exception("request %s failed", name)
            body = errors.envelope("the gateway failed", errors.SERVER_ERROR, "internal_error")
            return WholeAnswer(500, body, ((REQUEST_ID, name),))

    async def _route(self, http: web.BaseRequest, name: str) -> web.StreamResponse:
        route = self._posts.get(http.raw_path) or self._posts.get(http.path)
        if route is not None:
            if http.method != "POST":
                raise _wrong_method(http, route.value, "POST")
            arrival = http.arrival if isinstance(http, TimedRequest) else time.monotonic()
            return await Exchange(self._gateway, http, route, arrival, name).run()
        path = http.path
        if path == "/peers" and http.method == "GET":
            return await self._gateway.scheduler.hub.serve(http)
        get = self._gets.get(path)
        if get is None:
            get = self._find_model(path)
        if http.method not in ("GET", "HEAD"):
            raise _wrong_method(http, path, "GET, HEAD")
        return get()

    def _name(self, http: web.BaseRequest) -> str:
        given = http.headers.get(REQUEST_ID)
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given
        return self._gateway.next_name()

    def _find_model(self, path: str) -> Callable[[], WholeAnswer]:
        if path.startswith("/v1/models/"):
            if path.removeprefix("/v1/models/") == self._gateway.policy.model:
                return lambda: WholeAnswer(200, stats.model(self._gateway))
            raise RequestError(
                404, f"model must be '{self._gateway.policy.model}'", code="model_not_found"
            )
        raise RequestError(404, f"there is no route {path[:80]}", code="not_found")

    def _models(self) -> WholeAnswer:
        return WholeAnswer(200, stats.models(self._gateway))

    def _healthz(self) -> WholeAnswer:
        return WholeAnswer(200, b'{"status":"ok"}')

    def _metrics(self) -> WholeAnswer:
        return WholeAnswer(200, self._gateway.metrics.render(), (), CONTENT_TYPE)

    def _signals(self) -> WholeAnswer:
        return WholeAnswer(200, signals.body(self._gateway))

    def _openapi(self) -> WholeAnswer:
        return WholeAnswer(200, openapi.document())

    def _stats(self) -> WholeAnswer:
        return WholeAnswer(200, stats.snapshot(self._gateway))


def _wrong_method(http: web.BaseRequest, path: str, allowed: str) -> RequestError:
    message = f"{path} must be called with {allowed}, got {http.method}"
    return RequestError(405, message, code="method_not_allowed", headers=(("Allow", allowed),))


def _told(what: str, yes: bool) -> WholeAnswer:
    """The answer to a probe."""
    text = f'{{"{what}":{"true" if yes else "false"}}}'
    return WholeAnswer(200 if yes else 503, text.encode())
