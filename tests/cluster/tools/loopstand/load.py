"""Open-loop requests of one size, and what became of each."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from loopstand.fleet import PREFILL_SECONDS, SLOTS, STEP_SECONDS

TOKENS = 5
COST = PREFILL_SECONDS + (TOKENS - 1) * STEP_SECONDS / SLOTS
"""GPU-seconds of a request: its share of a full engine's time."""
DEADLINE_MS = 2000


@dataclass(frozen=True, slots=True)
class Row:
    """One request: when it left (monotonic seconds), its status (0: no answer) and refusal code."""

    at: float
    status: int
    code: str = ""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Answers:
    """The requests of a span of time."""

    rows: list[Row]

    @property
    def refused(self) -> float:
        """Share that was refused or dropped from the queue; 0 where there was no request."""
        return sum(row.status == 503 for row in self.rows) / max(len(self.rows), 1)

    @property
    def lost(self) -> list[Row]:
        """Those that were neither answered nor refused for lack of capacity."""
        allowed = {"deadline_unreachable", "pool_exhausted", "deadline_exceeded"}
        return [
            row
            for row in self.rows
            if row.status != 200 and not (row.status == 503 and row.code in allowed)
        ]

    @property
    def counts(self) -> Counter[str]:
        """How many by status and code."""
        return Counter(f"{row.status} {row.code}".strip() for row in self.rows)


class Load:
    """Sends requests at planned times, whatever becomes of the others.

    `urls()` names the gateways that take new connections now, as a Service would.
    """

    def __init__(self, urls: Callable[[], list[str]]) -> None:
        self._urls = urls
        self._rows: list[Row] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._client: aiohttp.ClientSession | None = None
        self._sent = 0

    async def run(
        self, load: float | Callable[[float], float], seconds: float, seed: int, retries: int = 0
    ) -> None:
        """Send so many pods of work for so long; `load` may be a function of the time passed.

        With `retries` each refusal is sent again so often at once, as the official clients mark it.
        """
        if self._client is None:
            self._client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        rng, begun, due = random.Random(seed), time.monotonic(), 0.0
        while True:
            wanted = load(due) if callable(load) else load
            due += rng.expovariate(wanted / COST) if wanted > 0 else seconds
            if due >= seconds:
                break
            await asyncio.sleep(begun + due - time.monotonic())
            self._sent += 1
            task = asyncio.create_task(self._ask(begun + due, self._sent, retries))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.sleep(begun + seconds - time.monotonic())

    def between(self, begin: float, end: float) -> Answers:
        """The first attempts that left in between; `settle` first."""
        rows = [row for row in self._rows if begin <= row.at < end and row.attempt == 1]
        return Answers(rows)

    def shares(self, begin: float, width: float) -> list[float]:
        """Share refused in each span of this width since `begin`."""
        last = max((row.at for row in self._rows), default=begin)
        spans = [begin + place * width for place in range(math.ceil((last - begin) / width))]
        return [round(self.between(at, at + width).refused, 3) for at in spans]

    @property
    def all(self) -> Answers:
        """All attempts."""
        return Answers(self._rows)

    async def settle(self) -> None:
        """Wait for all answers."""
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """Close the connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    async def _ask(self, at: float, number: int, retries: int) -> None:
        for attempt in range(retries + 1):
            row = await self._once(at, number, attempt)
            self._rows.append(row)
            if row.status != 503:
                return

    async def _once(self, at: float, number: int, attempt: int) -> Row:
        urls = self._urls()
        assert self._client is not None
        if not urls:
            return Row(at, 0, "no gateway", attempt + 1)
        body = {"model": "lab", "prompt": [1, 2, 3], "max_tokens": TOKENS, "ignore_eos": True}
        headers = {"X-Deadline-Ms": str(DEADLINE_MS), "x-stainless-retry-count": str(attempt)}
        url = f"{urls[number % len(urls)]}/v1/completions"
        try:
            async with self._client.post(url, json=body, headers=headers) as response:
                answer = await response.json()
        except (aiohttp.ClientError, OSError) as error:
            return Row(at, 0, type(error).__name__, attempt + 1)
        code = "" if response.status == 200 else str(answer["error"]["code"])
        return Row(at, response.status, code, attempt + 1)
