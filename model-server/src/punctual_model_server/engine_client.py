"""The front's hold on the engine process: start it, talk to it, notice when it is gone."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from typing import Final, Literal, cast

from punctual_model_server.engine import process
from punctual_model_server.engine.channel import FrameReader, pack
from punctual_model_server.engine.protocol import Cancel, Event, Failed, Ready, Step, Submit
from punctual_model_server.generation import Generation, Promise
from punctual_model_server.openai import Completion
from punctual_model_server.settings import Settings

logger = logging.getLogger(__name__)

State = Literal["starting", "ready", "draining", "dead"]
CANCELLED: Final = "cancelled"


class Engine(asyncio.Protocol):
    """The engine process and every request it has.

    Args:
        settings: how to run it.
        on_token: called with each request's token times, for metrics.
        on_end: called once for each request when the engine lets go of it.
    """

    def __init__(
        self,
        settings: Settings,
        on_token: Callable[[Generation, float, float], None] = lambda *_: None,
        on_end: Callable[[Generation], None] = lambda _: None,
    ) -> None:
        self.state: State = "starting"
        self.ready: Ready | None = None
        self.failure: str | None = None
        self.ratio = 1.0
        self.seq = 0
        self.generations: dict[int, Generation] = {}
        self.changed = asyncio.Event()
        self._settings = settings
        self._on_token = on_token
        self._on_end = on_end
        self._reader = FrameReader()
        self._transport: asyncio.WriteTransport | None = None
        self._process: multiprocessing.process.BaseProcess | None = None
        self._next_rid = 0
        self._stopping = False
        self._heard_at = time.monotonic()

    async def launch(self) -> None:
        """Start the process; returns at once, `ready` comes later."""
        ours, theirs = socket.socketpair()
        os.environ["OMP_NUM_THREADS"] = str(self._settings.threads)
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(
            target=process.run, args=(self._settings, theirs), name="engine", daemon=True
        )
        self._process.start()
        theirs.close()
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.create_unix_connection(lambda: self, sock=ours)

    @property
    def age_seconds(self) -> float:
        """Seconds since the engine last said anything."""
        return time.monotonic() - self._heard_at

    @property
    def running(self) -> list[Generation]:
        """Requests that hold a slot, in the order they came."""
        return [g for g in self.generations.values() if g.generated]

    @property
    def waiting(self) -> list[Generation]:
        """Requests without a slot, first come first."""
        return [g for g in self.generations.values() if not g.generated]

    def submit(self, name: str, completion: Completion, promise: Promise, seed: int) -> Generation:
        """Hand a request to the engine."""
        self._next_rid += 1
        generation = Generation(
            self._next_rid, name, len(completion.prompt), completion.max_tokens, promise
        )
        self.generations[generation.rid] = generation
        self._write(
            Submit(
                generation.rid,
                completion.prompt,
                completion.max_tokens,
                completion.temperature,
                completion.top_p,
                seed,
                completion.ignore_eos,
                promise.remaining,
                promise.first_token_only,
            )
        )
        return generation

    def cancel(self, generation: Generation) -> None:
        """Stop a request; it counts as the engine's until the engine has let go of it."""
        if generation.rid in self.generations:
            self._write(Cancel(generation.rid))

    def drain(self) -> None:
        """From now on the state is `draining` (a dead engine stays dead)."""
        if self.state != "dead":
            self._set_state("draining")

    def stop(self) -> None:
        """End the process now."""
        self._stopping = True
        if self._transport is not None:
            self._transport.abort()
        if self._process is not None and self._process.is_alive():
            self._process.kill()
            self._process.join(5)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to write."""
        self._transport = cast("asyncio.WriteTransport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """Take messages."""
        self._heard_at = time.monotonic()
        for message in self._reader.feed(data):
            if isinstance(message, Step):
                self._take_step(message)
            elif isinstance(message, Ready):
                self._take_ready(message)
            elif isinstance(message, Failed):
                self.failure = message.message
                logger.error("the engine cannot serve: %s", message.message)

    def connection_lost(self, exc: Exception | None) -> None:
        """The engine process ended: everything it had is lost."""
        if self.state != "dead" and not self._stopping:
            self.declare_dead(f"the engine process closed its channel ({exc or 'end of file'})")

    def declare_dead(self, reason: str) -> None:
        """Give up on the engine and tell every handler that waits for it."""
        logger.error("engine lost: %s", reason)
        self._set_state("dead")
        for generation in list(self.generations.values()):
            generation.lose()
            self._on_end(generation)
        self.generations.clear()
        self._notify()

    def _take_step(self, step: Step) -> None:
        self.seq, self.ratio = step.seq, step.ratio
        now = self._heard_at
        if step.start is not None and (started := self.generations.get(step.start.rid)):
            started.start = step.start
        for event in step.events:
            if (generation := self.generations.get(event.rid)) is not None:
                self._deliver(generation, event, now)

    def _deliver(self, generation: Generation, event: Event, now: float) -> None:
        before = generation.last_token_at
        generation.push(event, now)
        if generation.last_token_at != before:
            self._on_token(generation, now, before)
        if event.finish is not None:
            del self.generations[event.rid]
            self._on_end(generation)
            if not self.generations:
                self._notify()

    def _take_ready(self, message: Ready) -> None:
        self.ready, self.ratio = message, message.ratio
        if self.state == "starting":
            self._set_state("ready")
        model = message.calibration
        logger.info(
            "engine ready on %s: T(B) %s ms, prefill %.3f ms + %.4f ms per token, ratio %.3f",
            message.device,
            " ".join(f"{seconds * 1000:.3f}" for seconds in model.step_seconds),
            model.prefill_base * 1000,
            model.prefill_per_token * 1000,
            message.ratio,
        )

    def _set_state(self, state: State) -> None:
        self.state = state
        self._notify()

    def _notify(self) -> None:
        """Wake whoever waits for a change of state or for the last request to end."""
        self.changed.set()
        self.changed = asyncio.Event()

    def _write(self, message: Submit | Cancel) -> None:
        if self._transport is not None:
            self._transport.write(pack(message))
