"""One request on its way through the engine, as the front process sees it."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from punctual_model_server.engine.protocol import NO_TOKEN, Event, Finish, Start
from punctual_model_server.forecast import Work


class Promise(NamedTuple):
    """What the caller said of time: seconds left, what they count for, the length expected."""

    remaining: float | None = None
    first_token_only: bool = False
    expected_tokens: int | None = None


class Generation:
    """Collects the engine's events for one handler and keeps what the forecasts need.

    `stopped` says that a stop string ended the answer, which only the front can see.
    `deadline` is on the front's monotonic clock. The handler waits on `events`; nothing here
    blocks.
    """

    __slots__ = (
        "_events",
        "_waiter",
        "arrived",
        "deadline",
        "expected_tokens",
        "finish",
        "first_token_at",
        "first_token_only",
        "generated",
        "last_token_at",
        "lost",
        "max_tokens",
        "name",
        "prompt_tokens",
        "rid",
        "start",
        "stopped",
    )

    def __init__(
        self, rid: int, name: str, prompt_tokens: int, max_tokens: int, promise: Promise
    ) -> None:
        now = time.monotonic()
        self.rid = rid
        self.name = name
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.expected_tokens = min(promise.expected_tokens or max_tokens, max_tokens)
        self.arrived = now
        self.deadline = None if promise.remaining is None else now + promise.remaining
        self.first_token_only = promise.first_token_only
        self.generated = 0
        self.finish: Finish | None = None
        self.start: Start | None = None
        self.first_token_at = 0.0
        self.last_token_at = 0.0
        self.lost = False
        self.stopped = False
        self._events: list[Event] = []
        self._waiter: asyncio.Future[None] | None = None

    def push(self, event: Event, now: float) -> None:
        """Take one event from the engine."""
        if event.token != NO_TOKEN:
            if self.generated == 0:
                self.first_token_at = now
            self.generated += 1
            self.last_token_at = now
        if event.finish is not None:
            self.finish = event.finish
        self._events.append(event)
        self._wake()

    def lose(self) -> None:
        """The engine is gone: no more events will come."""
        self.lost = True
        self._wake()

    async def events(self) -> list[Event]:
        """Wait for events and return those that came; empty when the engine was lost."""
        if not self._events and not self.lost:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        events, self._events = self._events, []
        return events

    def work(self, now: float) -> Work:
        """Return this request as the forecast sees it."""
        counts = self.deadline is not None and not (self.first_token_only and self.generated)
        return Work(
            prompt_tokens=0 if self.generated else self.prompt_tokens,
            tokens_left=self._tokens_left(),
            deadline=self.deadline - now if self.deadline is not None and counts else None,
            first_token_only=self.first_token_only,
        )

    def _tokens_left(self) -> int:
        """Return the tokens still expected; past the expected length, half of what is possible."""
        if (left := self.expected_tokens - self.generated) > 0:
            return left
        return max((self.max_tokens - self.generated + 1) // 2, 1)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
