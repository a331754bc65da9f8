"""The pods behind the policy: one monitor for each address that discovery knows."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import aiohttp

from punctual_gateway.monitor import Monitor

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from punctual_gateway.discovery import Discovery
    from punctual_gateway.own_work import OwnWork
    from punctual_gateway.scheduler import Scheduler
    from punctual_gateway.settings import Settings

log = logging.getLogger(__name__)


def build_session() -> aiohttp.ClientSession:
    """The client that asks pods for their state; generation has connections of its own."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
    )


class Pods:
    """Starts and stops monitors as discovery says; finds the pod that the ledger names."""

    def __init__(
        self,
        scheduler: Scheduler,
        session: aiohttp.ClientSession,
        settings: Settings,
        own: OwnWork,
        peers: Container[str] = (),
    ) -> None:
        self._scheduler = scheduler
        self._session = session
        self._settings = settings
        self._own, self._peers = own, peers
        self._monitors: dict[str, Monitor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.discovered = asyncio.Event()
        """Set once discovery has answered."""

    @property
    def monitors(self) -> Iterable[Monitor]:
        """One for each address."""
        return self._monitors.values()

    @property
    def asked(self) -> bool:
        """Whether discovery has answered and each pod it named was asked at least once."""
        return self.discovered.is_set() and all(m.asked for m in self._monitors.values())

    @property
    def context(self) -> int | None:
        """The smallest context of the pods in tokens; None where no pod tells."""
        known = [m.context for m in self._monitors.values() if m.context is not None]
        return min(known, default=None)

    def find(self, pod_id: str) -> Monitor | None:
        """The monitor of the ledger's pod; None when it has gone."""
        return next((m for m in self._monitors.values() if m.pod_id == pod_id), None)

    async def follow(self, discovery: Discovery) -> None:
        """Follow discovery for ever."""
        async for urls in discovery.watch():
            self.apply(urls)
            self.discovered.set()

    def apply(self, urls: frozenset[str]) -> None:
        """Watch exactly these addresses."""
        for url in self._monitors.keys() - urls:
            log.info("pod %s has gone", url)
            self._tasks.pop(url).cancel()
            self._monitors.pop(url).leave()
        for url in sorted(urls - self._monitors.keys()):
            log.info("pod %s has come", url)
            monitor = Monitor(
                url, self._scheduler, self._session, self._settings, self._own, self._peers
            )
            self._monitors[url] = monitor
            self._tasks[url] = asyncio.create_task(monitor.run(), name=f"monitor {url}")
        self._scheduler.pump()

    async def close(self) -> None:
        """Stop all monitors."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
