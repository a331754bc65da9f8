"""The life of the process: listen, start the engine, watch it, drain on SIGTERM, exit."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from typing import Final

from aiohttp import web

from punctual_model_server.capacity import Capacity
from punctual_model_server.engine.models import read_architecture
from punctual_model_server.engine_client import Engine
from punctual_model_server.front import Front
from punctual_model_server.metrics import Metrics
from punctual_model_server.settings import Settings
from punctual_model_server.tokenizer import load_tokenizer

logger = logging.getLogger(__name__)

EXIT_ENGINE_LOST: Final = 70
EXIT_CANNOT_SERVE: Final = 2
_WATCH_SECONDS: Final = 0.25
_SAME_SIGNAL_SECONDS: Final = 1.0
_LAST_ANSWERS_SECONDS: Final = 0.3
_KEEP_ALIVE_SECONDS: Final = 75.0


class Server:
    """One run of the model server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._metrics = Metrics(settings.served_model_name)
        self._engine = Engine(settings, self._metrics.observe_token, self._metrics.observe_end)
        capacity = Capacity(self._engine, settings)
        self._metrics.watch(self._engine, capacity)
        architecture = read_architecture(settings.model)
        tokenizer = load_tokenizer(settings.tokenizer, settings.model, architecture)
        self._front = Front(settings, self._engine, capacity, self._metrics, tokenizer)
        self._terminated = asyncio.Event()
        self._terminated_at = 0.0

    async def run(self) -> int:
        """Serve until told to stop or the engine is lost; return the exit code."""
        runner = web.AppRunner(
            self._front.build_app(),
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            shutdown_timeout=1.0,
        )
        self._install_signals()
        try:
            await self._engine.launch()
            await self._listen(runner)
            gc.collect()
            gc.freeze()
            return await self._live()
        finally:
            self._engine.stop()
            await runner.cleanup()

    async def _listen(self, runner: web.AppRunner) -> None:
        await runner.setup()
        settings = self._settings
        await web.TCPSite(runner, settings.host, settings.port, backlog=1024).start()
        host, port = runner.addresses[0][:2]
        print(  # launchers read the port from this line
            f"punctual-model-server listening on http://{host}:{port}"
            f" model={settings.served_model_name} pid={os.getpid()}",
            flush=True,
        )

    async def _live(self) -> int:
        watch = asyncio.create_task(self._watch())
        told = asyncio.create_task(self._terminated.wait())
        try:
            await asyncio.wait({watch, told}, return_when=asyncio.FIRST_COMPLETED)
            if not watch.done():
                drained = asyncio.create_task(self._drain())
                await asyncio.wait({watch, drained}, return_when=asyncio.FIRST_COMPLETED)
                drained.cancel()
            return watch.result() if watch.done() else 0
        finally:
            watch.cancel()
            told.cancel()

    async def _watch(self) -> int:
        """Return an exit code when the engine is lost, silent for too long or never ready."""
        engine, settings = self._engine, self._settings
        loop = asyncio.get_running_loop()
        started = loop.time()
        while engine.state != "dead":
            if engine.ready is not None and await self._is_stuck():
                engine.declare_dead(f"silent for {engine.age_seconds:.1f} seconds")
            elif engine.ready is None and loop.time() - started > settings.start_timeout_seconds:
                engine.declare_dead(f"not ready within {settings.start_timeout_seconds:g} seconds")
            else:
                await self._wait_changed(_WATCH_SECONDS)
        await asyncio.sleep(_LAST_ANSWERS_SECONDS)  # handlers tell their clients
        return EXIT_CANNOT_SERVE if engine.failure is not None else EXIT_ENGINE_LOST

    async def _is_stuck(self) -> bool:
        """Say whether the engine is silent for too long, and not just unheard.

        Where this process stood still, the engine's words lie unread, or it stood still as well:
        it gets the time for a heartbeat.
        """
        if self._engine.age_seconds > self._settings.stuck_seconds:
            await asyncio.sleep(_WATCH_SECONDS)
        return self._engine.age_seconds > self._settings.stuck_seconds

    async def _drain(self) -> None:
        """Unready at once; accept a little longer; finish what runs; then return."""
        engine, settings = self._engine, self._settings
        logger.info("draining: %d requests here", len(engine.generations))
        engine.drain()
        await asyncio.sleep(settings.drain_accept_seconds)
        self._front.completions.accepting = False
        try:
            async with asyncio.timeout(settings.drain_seconds):
                while engine.generations:
                    await self._wait_changed(_WATCH_SECONDS)
        except TimeoutError:
            logger.warning("%d requests cut by the end of the drain", len(engine.generations))
        await asyncio.sleep(0)  # the last handlers write their last chunk

    async def _wait_changed(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._engine.changed.wait()
        except TimeoutError:
            return

    def _install_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        """The first signal drains; one that comes a second later or more ends at once.

        Launchers and terminals often signal a whole process group and then the process again.
        """
        now = time.monotonic()
        if self._terminated.is_set():
            if now - self._terminated_at < _SAME_SIGNAL_SECONDS:
                return
            logger.warning("second signal: ending without drain")
            self._engine.stop()
            sys.stderr.flush()
            os._exit(128 + signal.SIGTERM)
        self._terminated_at = now
        self._terminated.set()
