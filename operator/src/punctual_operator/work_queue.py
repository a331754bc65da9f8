"""A queue of keys in which a key waits at most once and is never worked on twice at a time.

A key that is added while it is worked on comes back when that is done, so the newest state is
always looked at, however many events there were.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")

BASE_SECONDS = 0.5
MAXIMUM_SECONDS = 300.0


class WorkQueue(Generic[K]):
    """For one event loop."""

    def __init__(self) -> None:
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        self._busy: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._arrival = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: K) -> None:
        """Let a key be worked on as soon as possible."""
        self._cancel(key)
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._busy:
            self._ready.append(key)
            self._arrival.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Let a key be worked on in a while, or earlier if it is to come earlier anyway."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= loop.time() + seconds:
            return
        self._cancel(key)
        self._timers[key] = loop.call_later(seconds, self.add, key)

    def add_failed(self, key: K) -> float:
        """Let a key be worked on again after a delay that doubles with each failure in a row."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(BASE_SECONDS * 2.0 ** min(failures, 20), MAXIMUM_SECONDS)
        delay *= random.uniform(0.8, 1.2)
        self.add_after(key, delay)
        return delay

    def forgive(self, key: K) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for a key; `done` has to follow."""
        while not self._ready:
            self._arrival.clear()
            await self._arrival.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._busy.add(key)
        return key

    def done(self, key: K) -> None:
        """End the work on a key."""
        self._busy.discard(key)
        if key in self._waiting:
            self._ready.append(key)
            self._arrival.set()

    def close(self) -> None:
        """Cancel all delayed keys."""
        for key in list(self._timers):
            self._cancel(key)

    def _cancel(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
