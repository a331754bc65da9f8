"""Start, drain, and every way to die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from support.model_server import ModelServer, is_alive, model_server, stopped, until

BODY = {"prompt": "hello", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
DRAIN = ("--drain-accept-seconds", "0.2")
SLOW = ("--sim-step-ms", "50")
"""For answers that must not end by themselves."""


async def stream_text(client: aiohttp.ClientSession, server: ModelServer, tokens: int) -> str:
    body = BODY | {"stream": True, "max_tokens": tokens}
    async with client.post(server.url + "/v1/completions", json=body) as answer:
        return await answer.text()


async def wait_running(server: ModelServer) -> None:
    await until(lambda: bool(server.capacity()["running"]))


async def read_into(answer: aiohttp.ClientResponse, received: bytearray) -> None:
    async for piece in answer.content.iter_any():
        received += piece


async def exit_code(server: ModelServer) -> int:
    return await asyncio.to_thread(server.process.wait, 60)


async def test_before_calibration_it_is_healthy_and_not_ready(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options, "--start-delay-seconds", "60") as server:
        assert server.get("/healthz")[0] == 200
        assert server.get("/readyz") == (503, {"state": "starting"})
        assert server.capacity()["state"] == "starting"
        async with client.post(server.url + "/v1/completions", json=BODY) as answer:
            error = (await answer.json())["error"]
            assert (answer.status, error["type"], error["code"]) == (503, "overloaded", "not_ready")
            assert 1 <= int(answer.headers["Retry-After"]) <= 60


async def test_not_ready_in_time_ends_the_process(
    tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    options = ("--start-delay-seconds", "60", "--start-timeout-seconds", "2")
    with model_server(tmp_path, *sim_options, *options) as server:
        engine = server.engine_pid
        assert await exit_code(server) == 70
        assert not is_alive(engine)
        assert "not ready within 2 seconds" in server.log_text


async def test_sigterm_turns_readiness_off_finishes_what_runs_and_exits_0(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options, *DRAIN) as server:
        server.wait_ready()
        running = asyncio.create_task(stream_text(client, server, 400))
        await wait_running(server)
        engine = server.engine_pid
        server.process.send_signal(signal.SIGTERM)
        await until(lambda: server.get("/readyz") == (503, {"state": "draining"}))
        assert server.capacity()["state"] == "draining"
        assert server.get("/healthz")[0] == 200
        text = await running
        assert text.count("data: ") == 401
        assert text.endswith("data: [DONE]\n\n")
        assert await exit_code(server) == 0
        assert not is_alive(engine)


async def test_late_in_a_drain_new_requests_are_refused_while_old_ones_finish(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    options = (*sim_options, "--drain-accept-seconds", "0")
    with model_server(tmp_path, *options) as server:
        server.wait_ready()
        body = BODY | {"max_tokens": 300}
        running = asyncio.create_task(post_status(client, server, body))
        await wait_running(server)
        server.process.send_signal(signal.SIGTERM)
        await until(lambda: server.get("/readyz")[0] == 503)
        async with client.post(server.url + "/v1/completions", json=BODY) as answer:
            assert answer.status == 503
            assert (await answer.json())["error"]["code"] == "draining"
        assert await running == 200
        assert await exit_code(server) == 0


async def post_status(
    client: aiohttp.ClientSession, server: ModelServer, body: dict[str, object]
) -> int:
    async with client.post(server.url + "/v1/completions", json=body) as answer:
        await answer.read()
        return answer.status


async def test_a_drain_ends_at_its_limit(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    options = (*SLOW, "--drain-accept-seconds", "0", "--drain-seconds", "0.2")
    with model_server(tmp_path, *sim_options, *options) as server:
        server.wait_ready()
        running = asyncio.create_task(stream_text(client, server, 900))
        await wait_running(server)
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(aiohttp.ClientError):
            await running
        assert await exit_code(server) == 0
        assert "cut by the end of the drain" in server.log_text


async def test_a_dead_engine_ends_the_process_and_breaks_the_streams_off(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options, *SLOW, "--slots", "1") as server:
        server.wait_ready()
        body = BODY | {"max_tokens": 900, "stream": True}
        async with client.post(server.url + "/v1/completions", json=body) as answer:
            waiting = asyncio.create_task(post_status(client, server, BODY))
            await until(lambda: bool(server.capacity()["waiting"]))
            os.kill(server.engine_pid, signal.SIGKILL)
            received = bytearray()
            with pytest.raises(aiohttp.ClientPayloadError):
                await read_into(answer, received)
        last = bytes(received).strip().split(b"\n\n")[-1]
        assert json.loads(last[6:])["error"]["code"] == "engine_dead"
        assert await waiting == 500
        assert await exit_code(server) == 70


async def test_a_stuck_engine_ends_the_process(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options, *SLOW, "--stuck-seconds", "0.5") as server:
        server.wait_ready()
        engine = server.engine_pid
        waiting = asyncio.create_task(post_status(client, server, BODY | {"max_tokens": 900}))
        await wait_running(server)
        with stopped(engine):
            assert await waiting == 500
            assert await exit_code(server) == 70
        assert not is_alive(engine)
        assert "silent for" in server.log_text


async def test_a_front_that_stood_still_does_not_take_its_engine_for_stuck(
    tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options, "--stuck-seconds", "0.5") as server:
        server.wait_ready()
        with stopped(server.process.pid):
            await asyncio.sleep(0.8)
        seen = server.capacity()["seq"]
        await until(lambda: server.capacity()["seq"] > seen + 3)
        assert server.get("/readyz")[0] == 200
        assert "silent for" not in server.log_text


async def test_the_front_answers_while_the_engine_does_not(
    tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options) as server:
        server.wait_ready()
        with stopped(server.engine_pid):
            await until(lambda: server.capacity()["age_seconds"] > 0.4)
            assert server.get("/healthz")[0] == 200
            assert server.get("/metrics")[0] == 200
        await until(lambda: server.capacity()["age_seconds"] < 0.4)


async def test_the_engine_never_outlives_the_front(
    tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options) as server:
        server.wait_ready()
        engine = server.engine_pid
        server.process.kill()
        await until(lambda: not is_alive(engine))


async def test_two_signals_of_one_ctrl_c_still_drain(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options, *DRAIN) as server:
        server.wait_ready()
        running = asyncio.create_task(post_status(client, server, BODY))
        await wait_running(server)
        server.process.send_signal(signal.SIGINT)
        server.process.send_signal(signal.SIGTERM)
        assert await running == 200
        assert await exit_code(server) == 0


async def test_a_port_in_use_exits_2_and_says_so(
    tmp_path: Path, sim_server: ModelServer, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options, "--port", str(sim_server.port)) as server:
        assert await exit_code(server) == 2
        assert "address already in use" in server.log_text


async def test_each_start_has_its_own_instance(
    tmp_path: Path, sim_server: ModelServer, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options) as server:
        assert server.capacity()["instance"] != sim_server.capacity()["instance"]
