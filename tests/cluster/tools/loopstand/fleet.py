"""Model pods without a process each, so that a dozen of them cost next to nothing.

A virtual pod speaks the model server's protocol over a socket of its own and sleeps the step times
of its engine, `SLOTS` requests at a time; it differs from `punctual-model-server --engine sim` in
that requests do not wait for each other's steps, and that it never says no.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from aiohttp import web

T = TypeVar("T")
SLOTS = 4
STEP_SECONDS = 0.1
PREFILL_SECONDS = 0.001
CONTEXT = 1024
DRAIN_SECONDS = 10.0
PORT = 8000


class VirtualPod:
    """One pod; `ready` some seconds after its start."""

    def __init__(self, address: str, delay: float) -> None:
        self.address = address
        self.ended = False
        self._delay, self._state, self._polls = delay, "starting", 0
        self._instance = str(uuid.uuid4())
        self._running: dict[str, dict[str, Any]] = {}
        self._slots = asyncio.Semaphore(SLOTS)
        self._runner: web.AppRunner | None = None

    async def run(self) -> None:
        """Listen, and be ready when it is time."""
        application = web.Application()
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/v1/capacity", self._capacity)
        application.router.add_get("/v1/models", self._models)
        application.router.add_post("/v1/completions", self._complete)
        self._runner = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        listener = socket.create_server((self.address, PORT), backlog=256)
        await web.SockSite(self._runner, listener).start()
        await asyncio.sleep(self._delay)
        if self._state == "starting":
            self._state = "ready"

    async def drain(self) -> None:
        """Be ready no more, finish what runs, end."""
        self._state = "draining"
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._running:  # noqa: ASYNC110  # no event tells that all have ended
                    await asyncio.sleep(0.05)
        await self.kill()

    def fail(self) -> None:
        """Be ready no more, and answer nothing but that."""
        self._state = "starting"

    async def kill(self) -> None:
        """End at once."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        self.ended = True

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self._state == "ready" else 503)

    async def _models(self, _: web.Request) -> web.Response:
        entry = {"id": "lab", "object": "model", "max_model_len": CONTEXT}
        return web.json_response({"object": "list", "data": [entry]})

    async def _capacity(self, _: web.Request) -> web.Response:
        self._polls += 1
        document = {
            "model": "lab",
            "instance": self._instance,
            "state": self._state,
            "seq": self._polls,
            "age_seconds": 0.0,
            "max_context": CONTEXT,
            "slots": SLOTS,
            "step_seconds": [STEP_SECONDS] * SLOTS,
            "prefill_seconds": {"base": PREFILL_SECONDS, "per_token": 0.0},
            "ratio": 1.0,
            "running": list(self._running.values()),
            "waiting": [],
        }
        return web.json_response(document)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        if self._state != "ready":
            error = {
                "message": "not ready",
                "type": "overloaded",
                "param": None,
                "code": "draining",
            }
            return web.json_response({"error": error}, status=503)
        body, name = await request.json(), request.headers.get("X-Request-Id", "")
        async with self._slots, self._resident(name, body) as entry:
            return await self._generate(request, entry)

    @contextlib.asynccontextmanager
    async def _resident(self, name: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        entry = {
            "id": name,
            "prompt_tokens": len(body["prompt"]),
            "generated": 0,
            "max_tokens": int(body["max_tokens"]),
        }
        key = str(uuid.uuid4())
        self._running[key] = entry
        try:
            yield entry
        finally:
            del self._running[key]

    async def _generate(self, request: web.Request, entry: dict[str, Any]) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        loop = asyncio.get_running_loop()
        due, count = loop.time() + PREFILL_SECONDS, entry["max_tokens"]
        for index in range(count):
            await asyncio.sleep(due - loop.time())
            due += STEP_SECONDS
            entry["generated"] = index + 1
            await answer.write(_event(_choice("length" if index == count - 1 else None)))
        usage = {"prompt_tokens": entry["prompt_tokens"], "completion_tokens": count}
        usage["total_tokens"] = sum(usage.values())
        await answer.write(_event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
        await answer.write_eof()
        return answer


class Fleet:
    """Virtual pods, served by one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, address: str, delay: float) -> VirtualPod:
        """Start a pod that is ready after so many seconds."""
        pod = self._wait(_make(address, delay))
        self._begin(pod.run())
        return pod

    def drain(self, pod: VirtualPod) -> None:
        """Let a pod finish what it has, and end; returns at once."""
        self._begin(pod.drain())

    def kill(self, pod: VirtualPod) -> None:
        """End a pod at once."""
        self._wait(pod.kill())

    def close(self) -> None:
        """End the thread, after the pods."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._loop.call_soon_threadsafe(self._keep, work)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(20)


async def _make(address: str, delay: float) -> VirtualPod:
    return VirtualPod(address, delay)


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def _choice(finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "logprobs": None, "text": "word ", "finish_reason": finish}
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "lab"}
    return head | {"choices": [choice]}
