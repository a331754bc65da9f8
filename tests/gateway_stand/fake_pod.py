"""A pod whose behaviour a test chooses, over a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import orjson
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Behaviour = Callable[["FakePod", web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def token_event(text: str, finish: str | None = None) -> bytes:
    """One chunk as the model server writes it."""
    choice = {"index": 0, "logprobs": None, "text": text, "finish_reason": finish}
    chunk = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "lab"}
    return b"data: " + orjson.dumps(chunk | {"choices": [choice]}) + b"\n\n"


def chat_event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """One chunk of a chat."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": "lab"}
    return b"data: " + orjson.dumps(chunk | {"choices": [choice]}) + b"\n\n"


DONE = b"data: [DONE]\n\n"


async def begin(http: web.Request) -> web.StreamResponse:
    """Send the head of a stream."""
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(http)
    return answer


async def answer_well(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """As many tokens as asked for, each after the pod's step."""
    answer = await begin(http)
    count = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
    for index in range(count):
        await asyncio.sleep(pod.step)
        await answer.write(token_event(f"t{index} ", "length" if index == count - 1 else None))
    if (body.get("stream_options") or {}).get("include_usage"):
        usage = {"prompt_tokens": 3, "completion_tokens": count, "total_tokens": 3 + count}
        await answer.write(b"data: " + orjson.dumps({"choices": [], "usage": usage}) + b"\n\n")
    await answer.write(DONE)
    await answer.write_eof()
    return answer


async def answer_when_released(
    pod: FakePod, http: web.Request, body: dict[str, Any]
) -> web.StreamResponse:
    """A good answer, once the test lets it go."""
    await pod.released.wait()
    return await answer_well(pod, http, body)


def abort(http: web.Request) -> None:
    """Drop the connection."""
    assert http.transport is not None
    cast("asyncio.WriteTransport", http.transport).abort()


async def hang(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


async def reset(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Drop the connection before the first byte."""
    abort(http)
    raise asyncio.CancelledError


async def reset_after_head(
    pod: FakePod, http: web.Request, body: dict[str, Any]
) -> web.StreamResponse:
    """Say that an answer comes, and drop the connection before its first byte."""
    await begin(http)
    abort(http)
    raise asyncio.CancelledError


async def break_off(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Two tokens, then the connection drops."""
    answer = await begin(http)
    await answer.write(token_event("one ") + token_event("two "))
    await pod.released.wait()
    abort(http)
    raise asyncio.CancelledError


async def end_early(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Two tokens, then a proper end of the body without an end of the answer."""
    answer = await begin(http)
    await answer.write(token_event("one ") + token_event("two "))
    await answer.write_eof()
    return answer


async def stall(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Two tokens, then nothing more."""
    answer = await begin(http)
    await answer.write(token_event("one ") + token_event("two "))
    await asyncio.Event().wait()
    raise AssertionError


async def flood(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """More than fits between a pod and a client that does not read."""
    answer = await begin(http)
    while True:
        await answer.write(token_event("x" * 100_000))


async def talk_html(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """Another application's page."""
    return web.Response(text="<html>hello</html>", content_type="text/html")


async def talk_garbage(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """A stream whose events are no JSON."""
    answer = await begin(http)
    await answer.write(b"data: {nonsense\n\n")
    await answer.write_eof()
    return answer


async def report_error(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """An error event in the middle of the answer."""
    answer = await begin(http)
    await answer.write(token_event("one "))
    await answer.write(b'data: {"error":{"message":"out of memory","type":"server_error"}}\n\n')
    await answer.write_eof()
    return answer


async def stop_at_deadline(
    pod: FakePod, http: web.Request, body: dict[str, Any]
) -> web.StreamResponse:
    """One token, and the pod's own word that the deadline came."""
    answer = await begin(http)
    await answer.write(token_event("one "))
    await pod.released.wait()
    await answer.write(token_event("", "deadline") + DONE)
    await answer.write_eof()
    return answer


def fail_with(status: int, code: str, kind: str = "overloaded") -> Behaviour:
    """Answer with an error envelope."""

    async def behave(pod: FakePod, http: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        error = {"message": f"pod says {code}", "type": kind, "param": None, "code": code}
        return web.json_response({"error": error}, status=status)

    return behave


@dataclass
class FakePod:
    """Serves the model server's routes; `behaviours` are used up first, then `behaviour`."""

    model: str = "lab"
    instance: str = "instance-1"
    state: str = "ready"
    slots: int = 4
    step: float = 0.0
    told_step: float = 0.001
    told_prefill: float = 0.001
    ratio: float = 1.0
    max_context: int = 1024
    memory: int | None = None
    capacity_status: int = 200
    capacity_hangs: bool = False
    foreign: list[dict[str, Any]] = field(default_factory=list)
    vllm_metrics: str = ""
    behaviour: Behaviour = answer_well
    behaviours: list[Behaviour] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    polls: int = 0
    active: int = 0
    url: str = ""

    def __post_init__(self) -> None:
        """Make what needs an event loop."""
        self.released = asyncio.Event()
        self.called = asyncio.Event()
        self.changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> FakePod:
        """Listen; with a port to come back where it was."""
        app = web.Application()
        app.router.add_get("/v1/capacity", self._capacity)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/v1/completions", self._generate)
        app.router.add_post("/v1/chat/completions", self._generate)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        listener = socket.create_server(("127.0.0.1", port))
        await web.SockSite(self._runner, listener).start()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        return self

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def wait_idle(self) -> None:
        """Wait until nothing runs here."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.active == 0)

    async def wait_active(self, count: int) -> None:
        """Wait until that much runs here."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.active == count)

    async def _generate(self, http: web.Request) -> web.StreamResponse:
        self.calls.append(body := await http.json())
        self.headers.append(http.headers.copy())
        behave = self.behaviours.pop(0) if self.behaviours else self.behaviour
        await self._count(1)
        self.called.set()
        try:
            return await behave(self, http, body)
        finally:
            self.active -= 1
            asyncio.get_running_loop().call_soon(self._tell)

    async def _count(self, change: int) -> None:
        async with self.changed:
            self.active += change
            self.changed.notify_all()

    def _tell(self) -> None:
        task = asyncio.ensure_future(self._count(0))
        self._told = task

    async def _capacity(self, _: web.Request) -> web.StreamResponse:
        self.polls += 1
        if self.capacity_hangs:
            await asyncio.Event().wait()
        if self.capacity_status != 200:
            return web.Response(status=self.capacity_status)
        return web.json_response(self.document())

    def document(self) -> dict[str, Any]:
        """What `/v1/capacity` says."""
        return {
            "model": self.model,
            "instance": self.instance,
            "state": self.state,
            "seq": self.polls,
            "age_seconds": 0.0,
            "max_context": self.max_context,
            "slots": self.slots,
            "step_seconds": [self.told_step] * self.slots,
            "prefill_seconds": {"base": self.told_prefill, "per_token": 0.0},
            "ratio": self.ratio,
            "running": self.foreign,
            "waiting": [],
            **({} if self.memory is None else {"kv": {"total_tokens": self.memory}}),
        }

    async def _models(self, _: web.Request) -> web.StreamResponse:
        entry = {"id": self.model, "object": "model", "max_model_len": self.max_context}
        return web.json_response({"object": "list", "data": [entry]})

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response()

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text=self.vllm_metrics)
