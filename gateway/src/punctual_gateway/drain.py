"""Shutting down without breaking a promise.

After SIGTERM: `/readyz` says no at once, and answers close their connections, so that clients take
the next one elsewhere; new requests are still decided for `drain_accept` seconds, because load
balancers need that long to hear of it; then they are refused as `draining`; what was admitted runs
to its end, `drain_limit` seconds at most. Kubernetes' `terminationGracePeriodSeconds` has to be
longer than the two together.

Whoever is still sent here gets an answer: the process ends only when nobody has come for
`drain_accept` seconds. That is what a lone replica needs, whose Service leads to it until its
successor is ready, however long that takes to start.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from punctual_gateway.gateway import Gateway

log = logging.getLogger(__name__)


async def drain(gateway: Gateway, loop: asyncio.AbstractEventLoop) -> None:
    """Finish what was admitted; a second signal ends the wait."""
    hurry = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, hurry.set)
    settings = gateway.settings
    gateway.accepting = False
    log.info("draining: accepting for %g s more", settings.drain_accept)
    if await _hurried(hurry, settings.drain_accept):
        return
    gateway.scheduler.ledger.draining = True
    rest = asyncio.ensure_future(_wait_deserted(gateway))
    stop = asyncio.ensure_future(hurry.wait())
    await asyncio.wait(
        (rest, stop), timeout=settings.drain_limit, return_when=asyncio.FIRST_COMPLETED
    )
    if unfinished := gateway.scheduler.ledger.running:
        log.warning("ending with %d requests unfinished", unfinished)
    elif not rest.done():
        log.warning("ending although clients are still sent here")
    rest.cancel()
    stop.cancel()


async def _wait_deserted(gateway: Gateway) -> None:
    """Wait until all is finished, and nobody has come for as long as it takes to hear of it."""
    while True:
        await gateway.scheduler.wait_empty()
        quiet = gateway.last_arrival + gateway.settings.drain_accept - gateway.scheduler.now
        if quiet <= 0:
            return
        await asyncio.sleep(quiet)


async def _hurried(hurry: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await hurry.wait()
    except TimeoutError:
        return False
    return True
