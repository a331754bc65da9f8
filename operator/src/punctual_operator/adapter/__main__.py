"""`punctual-metrics-adapter`: serves until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

import kopf
from aiohttp import web

from punctual_operator.adapter.access import Access
from punctual_operator.adapter.book import Limits
from punctual_operator.adapter.cluster import FIELD_MANAGER, Cluster
from punctual_operator.adapter.metrics import AdapterMetrics
from punctual_operator.adapter.server import Server
from punctual_operator.adapter.settings import Settings, parse_settings
from punctual_operator.adapter.sources import Sources
from punctual_operator.adapter.upkeep import Upkeep, UpkeepError
from punctual_operator.api import ApiError, open_connection

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
DRAIN_SECONDS = 5.0


class Adapter:
    """One process's parts."""

    def __init__(self, settings: Settings, cluster: Cluster, metrics: AdapterMetrics) -> None:
        self._settings = settings
        self._upkeep = Upkeep(cluster, settings, metrics)
        limits = Limits(fresh=settings.fresh, hold=settings.hold)
        self._sources = Sources(
            cluster, metrics, limits=limits, port=settings.gateway_port, poll=settings.poll
        )
        access = Access(cluster.review_access)
        server = Server(self._sources, access, metrics, lambda: self._upkeep.proxy)
        self._runner = web.AppRunner(server.application(), access_log=None)

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        await self._prepare()
        tasks = [
            asyncio.create_task(self._sources.run(), name="sources"),
            asyncio.create_task(self._upkeep.run(), name="upkeep"),
        ]
        await self._runner.setup()
        site = web.TCPSite(
            self._runner,
            self._settings.host,
            self._settings.port,
            ssl_context=self._upkeep.tls.listening,
            shutdown_timeout=DRAIN_SECONDS,
        )
        await site.start()
        log.info("serving at %s", ", ".join(f"{one[0]}:{one[1]}" for one in self._runner.addresses))
        tasks.append(asyncio.create_task(_until(stop), name="stop"))
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._runner.cleanup()
            await self._sources.close()

    async def _prepare(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._upkeep.prepare()
            except (ApiError, ValueError, OSError, UpkeepError) as error:
                log.warning("cannot serve yet, next try in %g s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                return


async def run(settings: Settings) -> None:
    """Run one adapter until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    metrics = AdapterMetrics()
    cluster = Cluster(await open_connection(FIELD_MANAGER), metrics)
    work = asyncio.create_task(Adapter(settings, cluster, metrics).serve(stop))
    stopped = asyncio.create_task(_until(stop))
    try:
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([work], timeout=2 * DRAIN_SECONDS)
        # still open only if it never came to serve
        if work.done():
            work.result()
    finally:
        work.cancel()
        stopped.cancel()
        await asyncio.gather(work, stopped, return_exceptions=True)
        await cluster.close()


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()


def main() -> None:
    """Run the adapter."""
    settings = parse_settings(sys.argv[1:])
    style = kopf.LogFormat.JSON if settings.log_format == "json" else kopf.LogFormat.FULL
    kopf.configure(debug=settings.log_level == "DEBUG", log_format=style)
    asyncio.run(run(settings))


if __name__ == "__main__":
    main()
