"""What reaches the client of an answer: events as they come, or one body at the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, cast

from punctual_gateway.answers import EventStream, WholeAnswer
from punctual_gateway.assembly import Assembly
from punctual_gateway.errors import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from aiohttp import web

    from punctual_gateway.call import Call
    from punctual_gateway.sse import Event

    Fields = Callable[[bool], list[tuple[str, str]]]
    """Headers of an answer; True when it is complete."""


UNREAD_LIMIT = 65_536
"""Bytes that may wait for a client before its reading is watched."""
STALLED_AFTER = 30.0
"""Seconds after which a client that reads nothing counts as gone."""


class Relay(Protocol):
    """Passes an answer on."""

    @property
    def begun(self) -> bool:
        """Whether the client has got anything of it."""
        ...

    async def take(self, events: Sequence[Event]) -> None:
        """Take events as they come; raises ConnectionError when the client has gone."""
        ...

    async def finish(self) -> web.StreamResponse:
        """The answer is complete."""
        ...

    async def fail(self, failure: Failure) -> web.StreamResponse:
        """It never will be."""
        ...


def whole(failure: Failure, fields: list[tuple[str, str]]) -> WholeAnswer:
    """A failure as a complete answer."""
    return WholeAnswer(failure.status, failure.body, (*fields, *failure.headers))


class StreamRelay:
    """For a client that streams: each event goes out unchanged in the moment it comes."""

    def __init__(self, http: web.BaseRequest, fields: Fields) -> None:
        self._http = http
        self._fields = fields
        self._answer: EventStream | None = None
        self._done = False

    @property
    def begun(self) -> bool:
        """Whether the status line is out."""
        return self._answer is not None

    async def take(self, events: Sequence[Event]) -> None:
        """Write them in one piece."""
        if self._answer is None:
            answer = self._answer = EventStream(self._fields(False))
            await answer.prepare(self._http)
        self._done = self._done or events[-1].done
        await self._write(self._answer, b"".join([event.raw for event in events]))

    async def _write(self, answer: EventStream, data: bytes) -> None:
        transport = self._http.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        waiting = cast("asyncio.WriteTransport", transport).get_write_buffer_size()
        if waiting + len(data) < UNREAD_LIMIT and not self._http.protocol.writing_paused:
            await answer.write(data)
        else:
            await self._bound(answer.write(data))

    async def _bound(self, writing: Coroutine[Any, Any, None]) -> None:
        """A client that reads nothing must not hold its slot for ever where nothing is cut."""
        try:
            async with asyncio.timeout(STALLED_AFTER):
                await writing
        except TimeoutError:
            if self._http.transport is not None:
                # to close it would wait for what is not read
                cast("asyncio.WriteTransport", self._http.transport).abort()
            raise ConnectionResetError("the client does not read") from None

    async def finish(self) -> web.StreamResponse:
        """End the stream; with the end mark, if the pod left it out."""
        answer = self._answer
        if answer is None:
            answer = EventStream(self._fields(False))
            await answer.prepare(self._http)
        if not self._done:
            await self._write(answer, b"data: [DONE]\n\n")
        await self._bound(answer.write_eof())
        return answer

    async def fail(self, failure: Failure) -> web.StreamResponse:
        """An error answer, or an error event and a connection that ends before the stream does."""
        answer = self._answer
        if answer is None:
            return whole(failure, self._fields(False))
        await self._write(answer, b"data: " + failure.body + b"\n\n")
        answer.abort(self._http)
        return answer


class WholeRelay:
    """For a client that does not stream."""

    begun = False

    def __init__(self, call: Call, fields: Fields) -> None:
        self._call = call
        self._fields = fields
        self._assembly = Assembly(call.route)
        self._tokens = 0

    async def take(self, events: Sequence[Event]) -> None:
        """Collect them."""
        for event in events:
            if event.chunk is not None:
                self._assembly.add(event.chunk)
                self._tokens += event.tokens

    async def finish(self) -> web.StreamResponse:
        """The body in one piece."""
        body = self._assembly.body(self._call.prompt_tokens, self._tokens)
        return WholeAnswer(200, body, self._fields(True))

    async def fail(self, failure: Failure) -> web.StreamResponse:
        """An error answer."""
        return whole(failure, self._fields(True))
