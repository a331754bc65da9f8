"""The HTTP face: routes, and one completion from its body to its last chunk."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from punctual_model_server.answer_text import AnswerText
from punctual_model_server.capacity import Capacity
from punctual_model_server.engine.protocol import NO_TOKEN, Event
from punctual_model_server.engine_client import Engine
from punctual_model_server.errors import ApiError, engine_lost, unavailable
from punctual_model_server.forecast import Work
from punctual_model_server.generation import Generation, Promise
from punctual_model_server.headers import REQUEST_ID, read_promise, read_request_id
from punctual_model_server.metrics import Metrics
from punctual_model_server.openai import (
    DONE,
    Completion,
    Limits,
    Writer,
    error_event,
    parse_completion,
)
from punctual_model_server.settings import Settings
from punctual_model_server.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_JSON: Final = "application/json"
_CLIENT_LEFT: Final = 499  # nobody reads it; aiohttp wants some answer
_STREAM_HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}


class Front:
    """Handlers over one engine. `accepting` is turned off late in a drain."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        capacity: Capacity,
        metrics: Metrics,
        tokenizer: Tokenizer,
    ) -> None:
        self.accepting = True
        self._settings = settings
        self._engine = engine
        self._capacity = capacity
        self._metrics = metrics
        self._tokenizer = tokenizer
        self._identity = {
            "X-Punctual-Model": settings.served_model_name,
            "X-Punctual-Instance": capacity.instance,
        }

    def build_app(self) -> web.Application:
        """Return the application with its routes."""
        app = web.Application(
            middlewares=[self._envelope], client_max_size=self._settings.max_body_bytes
        )
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/capacity", self._get_capacity)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._get_metrics)
        return app

    @web.middleware
    async def _envelope(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn every failure into the error envelope, with the identity headers."""
        allowed: dict[str, str] = {}
        try:
            return await handler(request)
        except ApiError as error:
            failure = error
        except web.HTTPException as error:
            failure = ApiError(error.status, _reason(request, error), code=_code(error.status))
            allowed = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
        except ConnectionError:  # the client left while it was being written to
            return web.Response(status=_CLIENT_LEFT)
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            failure = ApiError(500, "internal error", kind="server_error", code="internal_error")
        self._metrics.observe_error(failure.code or failure.kind)
        return failure.response(self._headers(read_request_id(request.headers)) | allowed)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        name = read_request_id(request.headers)
        arrived = time.monotonic()
        self._check_serving()
        promise = read_promise(request.headers)
        completion = self._parse(await self._read_body(request))
        promise = _spend(promise, time.monotonic() - arrived)
        self._check_room()
        self._check_deadline(completion, promise)
        seed = random.getrandbits(32) if completion.seed is None else completion.seed
        generation = self._engine.submit(name, completion, promise, seed)
        try:
            if completion.stream:
                return await self._stream(request, generation, completion)
            return await self._whole(generation, completion)
        finally:
            self._engine.cancel(generation)

    async def _read_body(self, request: web.Request) -> bytes:
        limit = self._settings.max_body_bytes
        if (request.content_length or 0) > limit:
            raise web.HTTPRequestEntityTooLarge(limit, request.content_length or 0)
        try:
            async with asyncio.timeout(self._settings.body_timeout_seconds):
                return await request.read()
        except TimeoutError:
            seconds = self._settings.body_timeout_seconds
            raise ApiError(
                408, f"the body must arrive within {seconds:g} seconds", code="body_timeout"
            ) from None

    def _parse(self, body: bytes) -> Completion:
        ready = self._engine.ready
        assert ready is not None, "checked by _check_serving"  # noqa: S101 - for mypy
        limits = Limits(self._settings.served_model_name, ready.max_context, ready.vocabulary)
        return parse_completion(body, limits, self._tokenizer)

    def _check_serving(self) -> None:
        """Refuse while there is no calibrated engine, or when the drain no longer accepts."""
        if self._engine.state == "dead":
            raise engine_lost()
        if not self.accepting:
            raise unavailable("the server is shutting down", "draining")
        if self._engine.ready is None:
            raise unavailable("the model is being loaded and calibrated", "not_ready", 2.0)

    def _check_room(self) -> None:
        limit = self._settings.max_waiting
        if len(self._engine.generations) >= self._settings.slots + limit:
            drain = self._capacity.drain_seconds()
            message = f"{limit} requests wait already, which is the most this server holds"
            raise unavailable(message, "queue_full", drain)

    def _check_deadline(self, completion: Completion, promise: Promise) -> None:
        """The pod's last word: 503 when its live state says that the deadline cannot be met."""
        if promise.remaining is None or not self._settings.last_word:
            return
        tokens = min(promise.expected_tokens or completion.max_tokens, completion.max_tokens)
        newcomer = Work(len(completion.prompt), tokens, promise.remaining, promise.first_token_only)
        word = self._capacity.last_word(newcomer)
        if word.accepted:
            return
        self._metrics.last_word_refusals.inc()
        raise _unreachable(word.predicted, promise.remaining, word.resident_made_late)

    async def _stream(
        self, request: web.Request, generation: Generation, completion: Completion
    ) -> web.StreamResponse:
        """Send one event for each token; the headers leave with the first."""
        events = await self._first_events(generation)
        response = web.StreamResponse(headers=self._headers(generation.name) | _STREAM_HEADERS)
        await response.prepare(request)
        writer = self._writer(generation, completion)
        text = AnswerText(self._tokenizer, completion.stops)
        while True:
            chunks = bytearray()
            for event in events:
                shown, finish = _show(text, event, generation)
                chunks += writer.chunk(shown, event.token, finish)
                if finish is not None:
                    if completion.include_usage:
                        chunks += writer.usage_chunk(generation.prompt_tokens, generation.generated)
                    await response.write(bytes(chunks + DONE))
                    return response
            await response.write(bytes(chunks))
            if not (events := await generation.events()):
                return await _abort(request, response)

    async def _whole(self, generation: Generation, completion: Completion) -> web.Response:
        """Collect the answer."""
        writer = self._writer(generation, completion)
        text = AnswerText(self._tokenizer, completion.stops)
        parts: list[str] = []
        tokens: list[int] = []
        events = await self._first_events(generation)
        while events:
            for event in events:
                shown, finish = _show(text, event, generation)
                parts.append(shown)
                if event.token != NO_TOKEN:
                    tokens.append(event.token)
                if finish is not None:
                    body = writer.whole("".join(parts), tokens, finish, generation.prompt_tokens)
                    headers = self._headers(generation.name)
                    return web.Response(body=body, content_type=_JSON, headers=headers)
            events = await generation.events()
        raise engine_lost()

    async def _first_events(self, generation: Generation) -> list[Event]:
        """Wait for the first token; an end before it is an error, not an answer."""
        events = await generation.events()
        if not events:
            raise engine_lost()
        if events[0].token == NO_TOKEN:
            waited = time.monotonic() - generation.arrived
            left = 0.0 if generation.deadline is None else generation.deadline - generation.arrived
            raise _unreachable(max(waited, left), left, False)
        return events

    def _writer(self, generation: Generation, completion: Completion) -> Writer:
        return Writer(
            f"cmpl-{generation.name}",
            self._settings.served_model_name,
            completion.include_usage,
            completion.return_token_ids,
        )

    def _headers(self, name: str) -> dict[str, str]:
        return {**self._identity, REQUEST_ID: name}

    async def _models(self, _: web.Request) -> web.Response:
        ready = self._engine.ready
        entry = {
            "id": self._settings.served_model_name,
            "object": "model",
            "created": int(ready.calibration.calibrated_at) if ready else 0,
            "owned_by": "punctual",
            "max_model_len": ready.max_context if ready else None,
        }
        return self._json({"object": "list", "data": [entry]})

    async def _get_capacity(self, _: web.Request) -> web.Response:
        return self._json(self._capacity.document())

    async def _healthz(self, _: web.Request) -> web.Response:
        """200 while the front answers and the engine is heard of."""
        engine, limit = self._engine, self._settings.stuck_seconds
        silent = engine.ready is not None and engine.age_seconds > limit
        healthy = engine.state != "dead" and not silent
        body = {"state": engine.state, "age_seconds": engine.age_seconds}
        return self._json(body, 200 if healthy else 503)

    async def _readyz(self, _: web.Request) -> web.Response:
        """200 once calibrated, until a drain begins."""
        state = self._engine.state
        return self._json({"state": state}, 200 if state == "ready" else 503)

    async def _get_metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.render(),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    def _json(self, document: object, status: int = 200) -> web.Response:
        return web.Response(
            status=status,
            body=orjson.dumps(document),
            content_type=_JSON,
            headers=self._identity,
        )


def _show(text: AnswerText, event: Event, generation: Generation) -> tuple[str, str | None]:
    """Return the text and the finish reason that this event's chunk carries."""
    shown = "" if event.token == NO_TOKEN else text.feed(event.token)
    if event.finish is not None and not text.stopped:
        shown += text.finish()
    generation.stopped = text.stopped
    return shown, "stop" if text.stopped else event.finish


def _spend(promise: Promise, seconds: float) -> Promise:
    """Take off the time that the body took to arrive."""
    if promise.remaining is None:
        return promise
    return promise._replace(remaining=promise.remaining - seconds)


async def _abort(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Say what happened and break the connection, so that half an answer never looks whole."""
    await response.write(error_event(engine_lost()))
    if request.transport is not None:
        request.transport.close()
    return response


def _unreachable(predicted: float, remaining: float, resident: bool) -> ApiError:
    whose = (
        "would make a request that is already here miss its deadline"
        if resident
        else (
            f"would end after {predicted * 1000:.0f} ms,"
            f" its deadline is in {remaining * 1000:.0f} ms"
        )
    )
    return ApiError(
        503,
        f"not started: the request {whose}",
        kind="overloaded",
        code="deadline_unreachable",
        retry_after=max(predicted - remaining, 0.0),
        numbers={
            "predicted_ms": round(predicted * 1000, 3),
            "remaining_ms": round(remaining * 1000, 3),
            "resident_made_late": resident,
        },
    )


def _reason(request: web.Request, error: web.HTTPException) -> str:
    if error.status == web.HTTPNotFound.status_code:
        return f"there is no {request.method} {request.path}"
    return error.text or error.reason


def _code(status: int) -> str:
    codes = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
    return codes.get(status, "invalid_request")
