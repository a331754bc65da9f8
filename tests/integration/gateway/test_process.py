"""The program itself: it starts, refuses a wrong policy, and stops without breaking a promise."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

import aiohttp
import pytest
import yaml

from gateway_stand.fake_pod import answer_when_released
from gateway_stand.process import program
from gateway_stand.stand import policy_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gateway_stand.fake_pod import FakePod
    from gateway_stand.process import Program
    from integration.gateway.conftest import StartPod

BODY = {"model": "lab", "prompt": [1, 2, 3], "max_tokens": 4}


def arguments(folder: Path, *pods: FakePod, accept: str = "0", **spec: object) -> list[str]:
    """A command line for these pods, with a policy file of its own."""
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(policy_object(**spec)))  # type: ignore[arg-type]
    backends = [word for pod in pods for word in ("--backend", pod.url)]
    return [
        "--policy", str(path), "--port", "0", "--drain-accept-seconds", accept, *backends,
    ]  # fmt: skip


async def wait_ready(url: str, client: aiohttp.ClientSession) -> None:
    """Wait until `/readyz` says so."""
    while True:
        async with client.get(f"{url}/readyz") as response:
            if response.status == 200:
                return
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def serving(*args: str) -> AsyncIterator[tuple[Program, aiohttp.ClientSession]]:
    """A gateway that is ready, and a client."""
    async with program("punctual_gateway", *args) as gateway, aiohttp.ClientSession() as client:
        await wait_ready(gateway.url, client)
        yield gateway, client


async def ask(url: str, client: aiohttp.ClientSession) -> int:
    """Status of one request."""
    async with client.post(f"{url}/v1/completions", json=BODY) as response:
        await response.read()
        return response.status


async def test_sigterm_finishes_what_was_admitted_and_refuses_the_rest(
    start_pod: StartPod, tmp_path: Path
) -> None:
    pod = await start_pod(slots=4, behaviour=answer_when_released)
    args = arguments(tmp_path, pod, mode="Unlimited")
    async with serving(*args) as (gateway, client):
        running = asyncio.create_task(ask(gateway.url, client))
        await pod.wait_active(1)
        gateway.process.send_signal(signal.SIGTERM)
        await until_draining(gateway.url, client)
        async with client.post(f"{gateway.url}/v1/completions", json=BODY) as response:
            assert response.status == 503
            assert response.headers["Connection"] == "close"
            assert (await response.json())["error"]["code"] == "draining"
        async with client.get(f"{gateway.url}/readyz") as response:
            assert response.status == 503
        pod.released.set()
        assert await running == 200
        assert await gateway.wait() == 0


async def until_draining(url: str, client: aiohttp.ClientSession) -> None:
    """Wait until new requests are refused."""
    while True:
        async with client.get(f"{url}/stats") as response:
            if (await response.json())["draining"]:
                return
        await asyncio.sleep(0.01)


async def test_sigterm_keeps_accepting_while_load_balancers_learn_of_it(
    start_pod: StartPod, tmp_path: Path
) -> None:
    args = arguments(tmp_path, await start_pod(), accept="600")
    async with serving(*args) as (gateway, client):
        gateway.process.send_signal(signal.SIGTERM)
        await until_unready(gateway.url, client)
        async with client.get(f"{gateway.url}/servingz") as response:
            assert response.status == 200
        assert await ask(gateway.url, client) == 200
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.wait() == 0


async def test_stopping_gateway_sends_its_clients_away_with_each_answer(
    start_pod: StartPod, tmp_path: Path
) -> None:
    """From SIGTERM on answers and streams close their connections; the next one goes elsewhere."""
    args = arguments(tmp_path, await start_pod(), accept="600")
    async with serving(*args) as (gateway, client):
        gateway.process.send_signal(signal.SIGTERM)
        await until_unready(gateway.url, client)
        for stream in (False, True):
            url, body = f"{gateway.url}/v1/completions", BODY | {"stream": stream}
            async with client.post(url, json=body) as response:
                assert response.status == 200
                assert response.headers["Connection"] == "close"
                assert await response.read()
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.wait() == 0


async def test_stopping_gateway_answers_for_as_long_as_clients_are_sent_to_it(
    start_pod: StartPod, tmp_path: Path
) -> None:
    """A lone replica refuses as `draining` until its Service leads to its successor."""
    args = arguments(tmp_path, await start_pod(), accept="2")
    async with serving(*args) as (gateway, client):
        gateway.process.send_signal(signal.SIGTERM)
        while await ask(gateway.url, client) == 200:
            pass
        assert {await ask(gateway.url, client) for _ in range(20)} == {503}
        assert await gateway.wait() == 0


async def until_unready(url: str, client: aiohttp.ClientSession) -> None:
    """Wait until `/readyz` no longer says so."""
    while True:
        async with client.get(f"{url}/readyz") as response:
            if response.status == 503:
                return
        await asyncio.sleep(0.01)


async def finished(*args: str) -> tuple[int, str]:
    """Exit status and output of a program that ends by itself."""
    async with program("punctual_gateway", *args, listens=False) as gateway:
        status = await gateway.wait()
    return status, "".join(gateway.lines)


async def test_invalid_policy_ends_the_start_with_status_2_and_every_fault(
    start_pod: StartPod, tmp_path: Path
) -> None:
    args = arguments(tmp_path, await start_pod(), mode="Sometimes", queue={"maximumRequests": -1})
    status, output = await finished(*args)
    assert status == 2
    assert "spec.mode must be one of Unlimited, Bounded, Deadline, Predictive" in output
    assert "spec.queue.maximumRequests must be an integer from 0 to 100000, got -1" in output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--policy", "/nonexistent", "--backend", "http://x:1"], "must be readable"),
        (["--policy", "x"], "--backend"),
        (["--policy", "x", "--backend", "nonsense"], "must be http://HOST:PORT"),
        (["--policy", "x", "--backend-dns", "nonsense"], "must be HOST:PORT"),
        (["--policy", "x", "--backend", "http://x:1", "--port", "99999"], "0 to 65535"),
        (["--policy", "x", "--backend", "http://x:1", "--stuck-seconds", "-1"], "0 to 86400"),
    ],
)
async def test_wrong_command_line_ends_with_status_2_and_says_what_is_allowed(
    words: list[str], says: str
) -> None:
    status, output = await finished(*words)
    assert status == 2
    assert says in output


async def test_port_in_use_ends_with_status_1(start_pod: StartPod, tmp_path: Path) -> None:
    pod = await start_pod()
    args = [*arguments(tmp_path, pod), "--port", pod.url.rsplit(":", 1)[1]]
    status, output = await finished(*args)
    assert (status, "cannot listen" in output) == (1, True)


async def test_missing_tokenizer_ends_with_status_2(start_pod: StartPod, tmp_path: Path) -> None:
    args = [*arguments(tmp_path, await start_pod()), "--tokenizer", str(tmp_path)]
    status, output = await finished(*args)
    assert (status, "tokenizer" in output) == (2, True)
