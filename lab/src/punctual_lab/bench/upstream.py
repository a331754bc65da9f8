"""A model server that answers at once: what is measured through it is the proxy in front.

Run as `python -m punctual_lab.bench.upstream PORT`. It speaks the routes that the gateway,
LiteLLM and plain proxies use: completions (whole or as SSE, one event a token), models, capacity,
health.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
import uuid
from typing import Any, cast

import orjson
import uvloop

MODEL = "lab"
SLOTS = 64
STEP_SECONDS = 1e-5
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_MAX_TOKENS = re.compile(rb'"max_tokens"\s*:\s*(\d+)')
_STREAM = re.compile(rb'"stream"\s*:\s*true')
_HEADER_END = b"\r\n\r\n"


class UpstreamProtocol(asyncio.Protocol):
    """One connection: answers each whole request in turn."""

    instance = str(uuid.uuid4())
    sequence = 0

    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (called by the event loop)."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer the requests that are whole (called by the event loop)."""
        self._buffer += data
        while (cut := split_request(self._buffer)) is not None:
            head, body, self._buffer = cut
            if self._transport is not None:
                self._transport.write(self.answer(head, body))

    def answer(self, head: bytes, body: bytes) -> bytes:
        """Return the whole answer to one request."""
        path = head.split(b" ", 2)[1].partition(b"?")[0]
        if path == b"/v1/completions":
            return answer_completion(body)
        if path == b"/v1/capacity":
            return build_response(orjson.dumps(self.capacity()))
        if path == b"/v1/models":
            return build_response(orjson.dumps({"object": "list", "data": [MODEL_OBJECT]}))
        if path in {b"/readyz", b"/healthz"}:
            return build_response(b"{}")
        return build_response(b'{"error":{"message":"no such route"}}', status=b"404 Not Found")

    def capacity(self) -> dict[str, Any]:
        """Return the pod state: always idle, with steps of 10 microseconds."""
        type(self).sequence += 1
        return {
            "model": MODEL,
            "instance": self.instance,
            "state": "ready",
            "seq": self.sequence,
            "age_seconds": 0.0,
            "max_context": 1024,
            "slots": SLOTS,
            "step_seconds": [STEP_SECONDS] * SLOTS,
            "prefill_seconds": {"base": STEP_SECONDS, "per_token": 0.0},
            "ratio": 1.0,
            "running": [],
            "waiting": [],
            "inflight_gpu_seconds": 0.0,
            "drain_seconds": 0.0,
            "wait_seconds": 0.0,
            "kv": {
                "bytes_per_token": 1,
                "total_tokens": 1024 * SLOTS,
                "used_tokens": 0,
                "reserved_tokens": 0,
            },
            "calibrated_at": time.time(),
        }


MODEL_OBJECT = {"id": MODEL, "object": "model", "created": 0, "owned_by": "bench"}


def split_request(buffer: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return head, body and rest of the first whole request, None while there is none."""
    end = buffer.find(_HEADER_END)
    if end < 0:
        return None
    found = _LENGTH.search(buffer, 0, end)
    start = end + len(_HEADER_END)
    stop = start + (int(found[1]) if found else 0)
    return None if len(buffer) < stop else (buffer[:end], buffer[start:stop], buffer[stop:])


def answer_completion(body: bytes) -> bytes:
    """Return a completion of max_tokens tokens, streamed if the request asks for it."""
    found = _MAX_TOKENS.search(body)
    tokens = int(found[1]) if found else 16
    usage = {"prompt_tokens": 4, "completion_tokens": tokens, "total_tokens": 4 + tokens}
    if not _STREAM.search(body):
        return build_response(orjson.dumps(build_completion("a" * tokens, "length", usage)))
    events = [build_completion("a", None)] * (tokens - 1) + [build_completion("a", "length")]
    if b'"include_usage"' in body:
        events.append({**build_completion("", None, usage), "choices": []})
    payload = b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)
    return build_response(payload + b"data: [DONE]\n\n", kind=b"text/event-stream")


def build_completion(
    text: str, reason: str | None, usage: dict[str, int] | None = None
) -> dict[str, Any]:
    """Return one completion object."""
    choice = {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}
    return {
        "id": "cmpl-bench",
        "object": "text_completion",
        "created": 0,
        "model": MODEL,
        "choices": [choice],
        "usage": usage,
    }


def build_response(
    payload: bytes, *, status: bytes = b"200 OK", kind: bytes = b"application/json"
) -> bytes:
    """Return the bytes of a response."""
    return (
        b"HTTP/1.1 " + status + b"\r\nContent-Type: " + kind + b"\r\nX-Punctual-Model: lab"
        b"\r\nX-Punctual-Instance: " + UpstreamProtocol.instance.encode() + b"\r\nContent-Length: "
        b"%d\r\n\r\n%s" % (len(payload), payload)
    )


async def serve(port: int) -> None:
    """Serve on 127.0.0.1 until cancelled."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(UpstreamProtocol, "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Serve on the port given as the only argument."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
