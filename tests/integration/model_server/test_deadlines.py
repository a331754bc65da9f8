"""Deadlines at the pod: the last word before the start, the cut while running."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from support.model_server import ModelServer, model_server, stopped, until

BODY = {"prompt": "hello", "max_tokens": 20, "temperature": 0, "ignore_eos": True}


async def ask(
    client: aiohttp.ClientSession, server: ModelServer, body: dict[str, Any], **headers: str
) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.post(server.url + "/v1/completions", json=body, headers=named) as answer:
        return answer.status, await answer.json()


async def test_a_request_that_cannot_make_it_is_refused_unstarted_with_the_numbers(
    client: aiohttp.ClientSession, sim_server: ModelServer
) -> None:
    before = sim_server.wait_idle()["seq"]
    status, answer = await ask(client, sim_server, BODY, X_Punctual_Remaining_Ms="50")
    error = answer["error"]
    assert (status, error["type"], error["code"]) == (503, "overloaded", "deadline_unreachable")
    assert error["punctual"]["predicted_ms"] >= 90
    assert error["punctual"]["remaining_ms"] <= 50
    assert sim_server.capacity()["seq"] - before < 20  # heartbeats, not twenty tokens


@pytest.mark.parametrize("remaining", ["0", "-5"])
async def test_no_time_left_is_a_refusal_and_never_no_deadline(
    client: aiohttp.ClientSession, sim_server: ModelServer, remaining: str
) -> None:
    status, answer = await ask(client, sim_server, BODY, X_Punctual_Remaining_Ms=remaining)
    assert (status, answer["error"]["code"]) == (503, "deadline_unreachable")


async def test_a_remaining_time_that_is_no_integer_is_a_400(
    client: aiohttp.ClientSession, sim_server: ModelServer
) -> None:
    status, answer = await ask(client, sim_server, BODY, X_Punctual_Remaining_Ms="soon")
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


async def test_an_expected_length_counts_instead_of_the_maximum(
    client: aiohttp.ClientSession, sim_server: ModelServer
) -> None:
    body = BODY | {"max_tokens": 900, "stop": ["nothing like this"]}
    headers = {"X_Punctual_Remaining_Ms": "1000"}
    status, _ = await ask(client, sim_server, body, **headers)
    assert status == 503
    expecting = asyncio.create_task(
        ask(client, sim_server, body, X_Punctual_Expected_Tokens="20", **headers)
    )
    status, answer = await expecting
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "deadline"


async def test_a_newcomer_that_would_make_a_resident_late_is_refused(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    options = (*sim_options[:4], "--sim-step-ms", "20,40", "--sim-prefill-ms", "20,0")
    with model_server(tmp_path, *options, "--slots", "2") as server:
        server.wait_ready()
        body = BODY | {"max_tokens": 100}
        resident = asyncio.create_task(ask(client, server, body, X_Punctual_Remaining_Ms="3000"))
        await until(lambda: bool(server.capacity()["running"]))
        status, answer = await ask(client, server, body, X_Punctual_Remaining_Ms="60000")
        assert (status, answer["error"]["code"]) == (503, "deadline_unreachable")
        assert answer["error"]["punctual"]["resident_made_late"] is True
        assert (await resident)[0] == 200


async def test_many_at_once_cannot_overshoot_the_pod(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    options = (*sim_options[:4], "--sim-step-ms", "20", "--sim-prefill-ms", "20,0")
    with model_server(tmp_path, *options, "--slots", "1") as server:
        server.wait_ready()
        calls = [
            ask(client, server, BODY | {"max_tokens": 10}, X_Punctual_Remaining_Ms="900")
            for _ in range(20)
        ]
        answers = await asyncio.gather(*calls)
    statuses = [status for status, _ in answers]
    # Each takes 200 ms of the 900: four, one less on a slow machine, more when some arrive late.
    assert 3 <= statuses.count(200) <= 6
    assert statuses.count(200) + statuses.count(503) == 20
    reasons = [a["choices"][0]["finish_reason"] for status, a in answers if status == 200]
    assert set(reasons) <= {"length", "deadline"}


async def test_a_running_answer_is_cut_at_its_deadline(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options, "--slots", "1", "--no-last-word") as server:
        server.wait_ready()
        body = BODY | {"max_tokens": 500, "stream": True}
        headers = {"X-Punctual-Remaining-Ms": "600"}
        async with client.post(
            server.url + "/v1/completions", json=body, headers=headers
        ) as answer:
            events = (await answer.text()).strip().split("\n\n")
        assert events[-1] == "data: [DONE]"
        reasons = [json.loads(e[6:])["choices"][0]["finish_reason"] for e in events[:-1]]
        assert reasons[-1] == "deadline"
        assert set(reasons[:-1]) == {None}
        assert len(reasons) <= 121
        waited = server.wait_idle()
        assert waited["kv"]["reserved_tokens"] == 0


async def test_a_waiting_request_whose_deadline_passes_is_refused_unstarted(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options, "--slots", "1", "--no-last-word") as server:
        server.wait_ready()
        first = asyncio.create_task(ask(client, server, BODY | {"max_tokens": 200}))
        await until(lambda: bool(server.capacity()["running"]))
        status, answer = await ask(client, server, BODY, X_Punctual_Remaining_Ms="50")
        assert (status, answer["error"]["code"]) == (503, "deadline_unreachable")
        assert (await first)[0] == 200


async def test_a_first_token_deadline_does_not_cut_the_answer(
    client: aiohttp.ClientSession, sim_server: ModelServer
) -> None:
    sim_server.wait_idle()
    status, answer = await ask(
        client,
        sim_server,
        BODY | {"max_tokens": 300},
        X_Punctual_Remaining_Ms="1200",
        X_Punctual_Objective="first_token",
    )
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_more_waiting_than_allowed_is_refused(
    client: aiohttp.ClientSession, tmp_path: Path, sim_options: tuple[str, ...]
) -> None:
    with model_server(tmp_path, *sim_options, "--slots", "1", "--max-waiting", "2") as server:
        server.wait_ready()
        with stopped(server.engine_pid):  # so that none ends before all have come
            calls = [asyncio.create_task(ask(client, server, BODY)) for _ in range(6)]
            await until(lambda: sum(call.done() for call in calls) == 3)
        answers = await asyncio.gather(*calls)
    assert sorted(status for status, _ in answers) == [200] * 3 + [503] * 3
    assert {a["error"]["code"] for status, a in answers if status == 503} == {"queue_full"}
