"""Clients that try again at once, against the gateway as a program."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml

from gateway_stand.process import program
from gateway_stand.stand import policy_object

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from integration.gateway.conftest import StartPod

PER_SECOND = 24
SECONDS = 6
RETRIES = 2
BODY = {"model": "lab", "prompt": [1, 2, 3], "max_tokens": 16}


class Client:
    """Sends requests at even times; each refusal is tried again at once, as clients mark it."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.statuses: Counter[int] = Counter()
        self._url, self._session, self._numbers = url, session, itertools.count()

    async def play(self, retries: int) -> list[dict[str, Any]]:
        """Send for `SECONDS`; returns what `/signals` said in the second half of them."""
        loop, seen = asyncio.get_running_loop(), []
        begun, tasks = loop.time(), []
        for place in range(PER_SECOND * SECONDS):
            await asyncio.sleep(begun + place / PER_SECOND - loop.time())
            tasks.append(asyncio.create_task(self._ask(next(self._numbers), retries)))
            if place % PER_SECOND == 0 and place >= PER_SECOND * SECONDS / 2:
                seen.append(await self.signals())
        await asyncio.gather(*tasks)
        return seen

    async def first_signals(self) -> dict[str, Any]:
        """The body of `/signals` as soon as the gateway has watched for one window."""
        while (found := await self.signals())["signals"] is None:  # noqa: ASYNC110  # a program's
            await asyncio.sleep(0.1)
        return found

    async def signals(self) -> dict[str, Any]:
        """The body of `/signals`."""
        async with self._session.get(f"{self._url}/signals") as response:
            found: dict[str, Any] = await response.json()
            return found

    async def _ask(self, number: int, retries: int) -> None:
        for headers in _attempts(number, retries + 1):
            url = f"{self._url}/v1/completions"
            async with self._session.post(url, json=BODY, headers=headers) as response:
                await response.read()
            self.statuses[response.status] += 1
            if response.status == 200:
                return


def _attempts(number: int, count: int) -> Iterator[dict[str, str]]:
    """Headers of the attempts: a third of the clients each numbers or names its requests."""
    for attempt in range(count):
        yield (
            {"x-stainless-retry-count": str(attempt)},
            {"Idempotency-Key": f"work-{number}"},
            {"X-Request-Id": f"request-{number}"},
        )[number % 3]


@pytest.mark.slow
async def test_storm_of_retries_moves_the_offered_load_of_a_live_gateway_by_less_than_a_twentieth(
    start_pod: StartPod, tmp_path: Path
) -> None:
    """Three times what the pod can do; then the same, and every refusal is tried twice again."""
    pod = await start_pod(step=0.02, told_step=0.02, told_prefill=0.02, slots=2)
    policy = tmp_path / "policy.yaml"
    # A tracked speed would change from moment to moment what work a request is.
    spec: dict[str, Any] = {
        "deadline": {"defaultMilliseconds": 500},
        "estimate": {"speed": "Fixed"},
    }
    policy.write_text(yaml.safe_dump(policy_object(**spec)))
    arguments = ["--policy", str(policy), "--port", "0", "--backend", pod.url]
    async with (
        program("punctual_gateway", *arguments, "--load-window-seconds", "2") as gateway,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        client = Client(gateway.url, session)
        before = await client.first_signals()
        calm = await client.play(retries=0)
        refused = client.statuses[503]
        between = await client.signals()
        storm = await client.play(retries=RETRIES)
        after = await client.signals()
    assert refused > PER_SECOND * SECONDS / 3
    assert client.statuses.total() > 2 * PER_SECOND * SECONDS + RETRIES * refused / 2
    totals = [one["offered_gpu_seconds"] for one in (before, between, after)]
    assert totals[2] - totals[1] == pytest.approx(totals[1] - totals[0], rel=0.05)
    loads = [median(one["signals"]["offered_load"] for one in seen) for seen in (calm, storm)]
    # of a few seconds on a busy machine; with the retries it would be more than twice as much
    assert 0.5 < loads[1] / loads[0] < 1.6
