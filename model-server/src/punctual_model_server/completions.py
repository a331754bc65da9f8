"""One completion from its body to its last chunk."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from punctual_model_server.answer_text import AnswerText
from punctual_model_server.capacity import Capacity
from punctual_model_server.engine.protocol import NO_TOKEN, Event
from punctual_model_server.engine_client import Engine
from punctual_model_server.errors import ApiError, engine_lost, unavailable
from punctual_model_server.forecast import Work
from punctual_model_server.generation import Generation, Promise
from punctual_model_server.headers import read_promise, read_request_id
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

_LONGEST_AT_ONCE: Final = 8192
"""Bytes of a body; a longer one is read in a thread, or the tokens of others would wait for it."""
_STREAM_HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}


class Completions:
    """The handler of `POST /v1/completions` over one engine.

    `accepting` is turned off late in a drain; `headers` gives an answer's headers for a request id.
    """

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        capacity: Capacity,
        metrics: Metrics,
        tokenizer: Tokenizer,
        headers: Callable[[str], dict[str, str]],
    ) -> None:
        self.accepting = True
        self._settings = settings
        self._engine = engine
        self._capacity = capacity
        self._metrics = metrics
        self._tokenizer = tokenizer
        self._headers = headers

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Check, submit, answer; whatever happens, the engine lets go of the request."""
        name = read_request_id(request.headers)
        arrived = time.monotonic()
        self._check_serving()
        promise = read_promise(request.headers)
        completion = await self._parse(await self._read_body(request))
        self._check_serving()  # again: a slow body may outlast the engine
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

    async def _parse(self, body: bytes) -> Completion:
        ready = self._engine.ready
        assert ready is not None, "checked by _check_serving"  # noqa: S101 - for mypy
        limits = Limits(self._settings.served_model_name, ready.max_context, ready.vocabulary)
        if len(body) > _LONGEST_AT_ONCE:
            return await asyncio.to_thread(parse_completion, body, limits, self._tokenizer)
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
                    return web.Response(body=body, content_type="application/json", headers=headers)
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
