"""Other gateways over the same pool: each tells the others what waits and what runs for it.

A gateway asks each of its peers for `/peers`, an answer that never ends: one line of JSON with the
peer's whole state at the beginning, after each change (at most one in `TELL_AFTER`), and every
`HEARTBEAT` seconds. What it hears goes to the ledger, which keeps one merged queue (see
`punctual_admission.peers`). A peer that is silent for `SILENCE` seconds, or whose connection ends,
is forgotten with all that waited there: then polling the pods and their last word are what is left.

Deadlines travel as seconds that are left, so clocks of machines need not agree; they come out
later by the time of travel, which makes each gateway think of itself as a little earlier. So of
two heads with nearly the same deadline both may start, never none.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
from aiohttp import web

from punctual_admission.pool import Foreign
from punctual_admission.ticket import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from punctual_admission.ticket import Ticket
    from punctual_gateway.discovery import Discovery
    from punctual_gateway.scheduler import Scheduler

log = logging.getLogger(__name__)

TELL_AFTER = 0.002
"""Seconds in which changes are gathered."""
TOKENS_AFTER = 0.05
"""Seconds after which tokens alone are told."""
HEARTBEAT = 0.5
SILENCE = 2.0
RECONNECT = 0.5
REST = 30.0
"""Seconds until an address that turned out to be this very process is tried again."""
MEMORY = 5.0
"""Seconds for which requests of others are remembered: a pod's report is a little older."""
LONGEST_LINE = 16_777_216


class Hub:
    """This gateway's own state, for whoever listens."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.name = uuid.uuid4().hex
        """Of this process; a peer with the same one is this process itself."""
        self._scheduler = scheduler
        self._listeners: set[asyncio.Event] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._line = b""
        self._ending = False

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    def changed(self, *, tokens: bool = False) -> None:
        """Something waits, runs or has ended; or only tokens came."""
        if not self._listeners or (self._timer is not None and (tokens or self._soon)):
            return
        self._cancel()
        self._soon = not tokens
        delay = TOKENS_AFTER if tokens else TELL_AFTER
        self._timer = asyncio.get_running_loop().call_later(delay, self._publish)

    def end(self) -> None:
        """End every answer."""
        self._ending = True
        self._cancel()
        for event in self._listeners:
            event.set()

    async def serve(self, http: web.BaseRequest) -> web.StreamResponse:
        """Answer one listener until it leaves."""
        answer = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await answer.prepare(http)
        event = asyncio.Event()
        self._listeners.add(event)
        self._line = build_line(self.name, self._scheduler)
        try:
            while not self._ending:
                await answer.write(self._line)
                event.clear()
                await self._wait(event)
        finally:
            self._listeners.discard(event)
        await answer.write_eof()
        return answer

    async def _wait(self, event: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT):
                await event.wait()
        except TimeoutError:
            self._line = build_line(self.name, self._scheduler)

    def _publish(self) -> None:
        self._timer, self._soon = None, False
        self._line = build_line(self.name, self._scheduler)
        for event in self._listeners:
            event.set()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def build_line(name: str, scheduler: Scheduler) -> bytes:
    """What waits (id, prompt and output tokens, seconds left) and runs (per pod) as JSON."""
    now, ledger = scheduler.now, scheduler.ledger
    waiting = [
        [
            t.request.id,
            t.request.prompt_tokens,
            max(round(t.expected_tokens), 1),
            t.request.deadline - now,
        ]
        for t in ledger.own_queue
    ]
    running = {
        pod.id: [_running(t) for t in pod.residents.values()]
        for pod in ledger.all_pods
        if pod.residents
    }
    line = {"gateway": name, "waiting": waiting, "running": running}
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def _running(ticket: Ticket) -> list[Any]:
    """Id, tokens to come, and the prompt if it was not read yet."""
    prompt = None if ticket.generated else ticket.request.prompt_tokens
    return [ticket.request.id, max(round(ticket.remaining), 1), prompt]


class Peers:
    """Listens to the other gateways."""

    def __init__(self, scheduler: Scheduler, session: aiohttp.ClientSession, own_name: str) -> None:
        self._scheduler = scheduler
        self._session = session
        self._own_name = own_name
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.connected: dict[str, str] = {}
        """The name of the peer behind each address that tells."""
        self._seen: dict[str, float] = {}

    def __contains__(self, request_id: object) -> bool:
        """Whether a request is or was a moment ago a peer's."""
        return request_id in self._seen

    async def follow(self, discovery: Discovery) -> None:
        """Follow discovery for ever."""
        async for urls in discovery.watch():
            for url in self._tasks.keys() - urls:
                self._tasks.pop(url).cancel()
            for url in sorted(urls - self._tasks.keys()):
                self._tasks[url] = asyncio.create_task(self._listen(url), name=f"peer {url}")

    async def close(self) -> None:
        """Stop listening."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self, url: str) -> None:
        while True:
            pause = RECONNECT
            try:
                pause = await self._hear_all(url)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.debug("peer %s cannot be heard: %s", url, error)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                log.warning("peer %s said what cannot be understood: %r", url, error)
            except Exception:  # a fault of ours must not make this one deaf for ever
                log.exception("hearing peer %s failed", url)
            await asyncio.sleep(pause)

    async def _hear_all(self, url: str) -> float:
        """Listen until the answer ends; returns how long to leave the address alone."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE, sock_read=SILENCE)
        try:
            async with self._session.get(f"{url}/peers", timeout=timeout) as answer:
                if answer.status != 200:
                    raise ValueError(f"/peers must answer 200, got {answer.status}")
                async for line in _lines(answer.content):
                    said = orjson.loads(line)
                    if said["gateway"] == self._own_name:
                        return REST
                    self._hear(url, said)
        finally:
            self._lose(url)
        return RECONNECT

    def _hear(self, url: str, said: dict[str, Any]) -> None:
        now, ledger = self._scheduler.now, self._scheduler.ledger
        if self.connected.get(url) != said["gateway"]:
            log.info("peer %s shares its queue", url)
            self._lose(url)
            self.connected[url] = said["gateway"]
        waiting = [
            Request(name, prompt, tokens, now, now + left)
            for name, prompt, tokens, left in said["waiting"]
        ]
        running: dict[str, list[Foreign]] = {}
        for pod_id, residents in said["running"].items():
            running[pod_id] = [Foreign(left, prompt) for _, left, prompt in residents]
            self._remember((name for name, _, _ in residents), now)
        ledger.observe_peer(said["gateway"], waiting, running, now)
        self._scheduler.pump(tell=False)

    def _lose(self, url: str) -> None:
        name = self.connected.pop(url, None)
        if name is not None:
            log.info("peer %s no longer tells", url)
            self._scheduler.ledger.lose_peer(name)
            self._scheduler.pump(tell=False)

    def _remember(self, names: Iterable[str], now: float) -> None:
        for name in names:
            self._seen.pop(name, None)
            self._seen[name] = now
        while self._seen:
            oldest = next(iter(self._seen))
            if self._seen[oldest] >= now - MEMORY:
                return
            del self._seen[oldest]


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of an answer, each as long as need be."""
    rest = b""
    while data := await content.readany():
        *whole, rest = (rest + data).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise ValueError(f"a line must be at most {LONGEST_LINE} bytes")
        if whole:
            # each line says everything, so only the newest counts
            yield whole[-1]
