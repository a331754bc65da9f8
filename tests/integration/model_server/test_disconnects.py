"""Clients that leave, in every phase."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import struct
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

import aiohttp

from support.model_server import ModelServer, model_server, until

BODY = {"prompt": "hello", "max_tokens": 400, "temperature": 0, "ignore_eos": True, "stream": True}
PHASES = ("before body", "half body", "waiting", "streaming", "reset while streaming")


def request_bytes(body: dict[str, object]) -> tuple[bytes, bytes]:
    payload = json.dumps(body).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(payload)
    return head, payload


async def leave(port: int, phase: str, stream: bool) -> None:
    """Open a request and go away in the given phase."""
    head, payload = request_bytes(BODY | {"stream": stream})
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if phase == "before body":
        writer.write(head)
    elif phase == "half body":
        writer.write(head + payload[: len(payload) // 2])
    else:
        writer.write(head + payload)
    await writer.drain()
    if stream and phase.endswith("streaming"):
        await reader.readuntil(b"data: ")
    if phase.startswith("reset"):
        sock = writer.get_extra_info("socket")
        sock.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    await close(writer)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_a_thousand_clients_that_leave_cost_no_slot(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    options = (*sim_options[:4], "--sim-step-ms", "1", "--sim-prefill-ms", "1,0")
    with model_server(tmp_path, *options, "--slots", "4") as server:
        server.wait_ready()
        rng = random.Random(1)
        phases = [rng.choice(PHASES) for _ in range(1000)]
        for batch in range(0, len(phases), 50):
            await asyncio.gather(
                *(
                    leave(server.port, phase, stream=rng.random() < 0.7 or "stream" in phase)
                    for phase in phases[batch : batch + 50]
                )
            )
        document = await asyncio.to_thread(server.wait_idle)
        assert document["kv"]["reserved_tokens"] == 0
        assert document["state"] == "ready"
        body = BODY | {"stream": False, "max_tokens": 5}
        answers = [
            client.post(server.url + "/v1/completions", json=body) for _ in range(document["slots"])
        ]
        for answer in await asyncio.gather(*answers):
            assert answer.status == 200
            answer.release()
        assert "Traceback" not in server.log_text
        metrics = server.get("/metrics")[1]
        assert 'vllm:num_requests_running{model_name="gpt2-tiny"} 0.0' in metrics


async def generated_after_leaving(server: ModelServer, stream: bool) -> float:
    """Return how many tokens the engine made once the client had left and the pod was idle."""
    head, payload = request_bytes(BODY | {"stream": stream})
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head + payload)
    await until(lambda: any(r["generated"] >= 3 for r in server.capacity()["running"]))
    await close(writer)
    return await tokens_made(server)


async def tokens_made(server: ModelServer) -> float:
    await asyncio.to_thread(server.wait_idle)
    lines = server.get("/metrics")[1].splitlines()
    line = next(line for line in lines if line.startswith("vllm:generation_tokens_total"))
    return float(line.split()[-1])


async def test_the_engine_stops_for_streaming_and_for_waiting_clients_that_left(
    tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options, "--slots", "1") as server:
        server.wait_ready()
        for stream in (True, False):
            before = await tokens_made(server)
            after = await generated_after_leaving(server, stream)
            assert after - before < 300  # 400 had it gone on


async def test_a_half_closed_connection_is_a_client_that_left(sim_server: ModelServer) -> None:
    head, payload = request_bytes(BODY)
    reader, writer = await asyncio.open_connection("127.0.0.1", sim_server.port)
    writer.write(head + payload)
    writer.write_eof()
    await reader.read()
    await close(writer)
    document = await asyncio.to_thread(sim_server.wait_idle)
    assert document["running"] == []
