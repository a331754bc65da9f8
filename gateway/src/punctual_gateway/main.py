"""The command `punctual-gateway`: start, serve, drain."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence

import uvloop
from aiohttp import web

from punctual_admission.fields import PolicyError
from punctual_gateway import stats
from punctual_gateway.drain import drain
from punctual_gateway.gateway import Gateway
from punctual_gateway.server import Server
from punctual_gateway.settings import Settings, parse_settings
from punctual_gateway.tokens import TokenizerError

log = logging.getLogger("punctual_gateway")

COLLECT_EVERY = (10_000, 20, 50)
"""Garbage collection: objects, then young and middle collections, between two."""
INVALID = 2
"""Exit status for a wrong command line or policy."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    settings = parse_settings(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        return uvloop.run(serve(settings))
    except PolicyError as error:
        for problem in error.problems:
            print(f"punctual-gateway: invalid policy {settings.policy}: {problem}", file=sys.stderr)
        return INVALID
    except TokenizerError as error:
        print(f"punctual-gateway: {error}", file=sys.stderr)
        return INVALID
    except OSError as error:
        print(f"punctual-gateway: cannot listen: {error}", file=sys.stderr)
        return 1


def settle_memory() -> None:
    """Leave what the start has built out of every later garbage collection.

    Looking through it again and again costs milliseconds each time, and a refusal takes less than
    one.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_EVERY)


async def serve(settings: Settings, gateway: Gateway | None = None) -> int:
    """Serve until told to stop, then drain; returns the exit status."""
    gateway = gateway or Gateway(settings)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    runner = web.ServerRunner(Server(gateway))
    try:
        gateway.metrics.watch(lambda: stats.gauges(gateway))
        await runner.setup()
        site = web.TCPSite(runner, settings.host, settings.port, backlog=1024, shutdown_timeout=1)
        await site.start()
        gateway.start()
        settle_memory()
        log.info("listening on %s for model %s", site.name, gateway.policy.model)
        await stopping.wait()
        await drain(gateway, loop)
    finally:
        gateway.scheduler.hub.end()
        await runner.cleanup()
        await gateway.close()
    return 0
