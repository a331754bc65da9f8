"""The decisions of a live gateway, lived again from its log."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientError

from gateway_stand.stand import policy_object
from punctual_admission.recording.player import Player
from punctual_lab.decision_log import read_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gateway_stand.fake_pod import FakePod
    from gateway_stand.stand import Stand

    StartPod = Callable[..., Awaitable[FakePod]]
    StartGateway = Callable[..., Awaitable[Stand]]

SPECS: tuple[dict[str, Any], ...] = (
    {"queue": {"displacement": "Longest"}},
    {"mode": "Deadline"},
    {"mode": "Bounded"},
    {"mode": "Unlimited"},
    {"estimate": {"outputLength": "Learned"}},
    {"sizeClasses": [{"name": "long", "minimumTokens": 8, "reservedPercent": 25}]},
)


async def ask(stand: Stand, rng: random.Random) -> None:
    """One request; some clients lose their patience, some have little time."""
    tokens = rng.choice((1, 2, 4, 8, 16))
    patience = rng.choice((0.02, 0.1, 5.0, 5.0, 5.0))
    headers = {"X-Deadline-Ms": str(rng.choice((40, 120, 200, 5000)))}
    try:
        async with asyncio.timeout(patience):
            async with stand.complete(tokens, headers=headers, stream=rng.random() < 0.5) as answer:
                await answer.read()
    except (TimeoutError, ClientError):
        pass


async def ask_many(stand: Stand, count: int, seed: int) -> None:
    rng = random.Random(seed)
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(ask(stand, rng))
            await asyncio.sleep(rng.expovariate(150))


async def ask_in_turn(stand: Stand, count: int) -> None:
    for _ in range(count):
        async with stand.complete(2) as answer:
            await answer.read()


def play(path: Path) -> Player:
    player = Player()
    for line in read_lines(path):
        player.feed(line)
    return player


@pytest.mark.parametrize("spec", SPECS, ids=str)
async def test_each_decision_is_made_again_exactly(
    start_pod: StartPod, start_gateway: StartGateway, tmp_path: Path, spec: dict[str, Any]
) -> None:
    pods = [await start_pod(step=0.002, slots=slots) for slots in (1, 3)]
    path = tmp_path / "decisions.jsonl"
    stand = await start_gateway(*pods, settings={"decision_log": path}, **spec)
    await ask_many(stand, 60, 1)
    stand.write_policy(policy_object(2, mode="Predictive", estimate={"speed": "Fixed"}))
    await stand.until(lambda: stand.gateway.loaded.generation == 2)
    await ask_many(stand, 60, 2)
    await stand.stats()
    stand.gateway.scheduler.ledger.draining = True
    await ask_many(stand, 2, 3)
    await stand.settle()
    written = stand.gateway.decision_log
    assert written is not None
    shown = await stand.stats()
    assert shown["decision_log"]["dropped"] == 0
    await stand.gateway.close()
    player = play(path)
    assert player.differences == []
    assert player.decisions == sum(stand.outcomes().values()) > 60
    assert player.skipped == 0


async def test_without_a_log_nothing_is_recorded(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod())
    assert type(stand.gateway.scheduler.ledger).__name__ == "Ledger"
    assert (await stand.stats())["decision_log"] is None


async def test_the_policy_begins_and_ends_a_log_without_a_restart(
    start_pod: StartPod,
    start_gateway: StartGateway,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stand = await start_gateway(await start_pod())
    gateway = stand.gateway
    await ask_in_turn(stand, 3)
    stand.write_policy(policy_object(2, decisionLog="Stdout"))
    await stand.until(lambda: gateway.decision_log is not None)
    await ask_in_turn(stand, 5)
    await stand.settle()
    stand.write_policy(policy_object(3))
    await stand.until(lambda: gateway.decision_log is None)
    await ask_in_turn(stand, 3)
    log = tmp_path / "collected"
    log.write_text(capfd.readouterr().out)
    player = play(log)
    assert (player.decisions, player.differences, player.skipped) == (5, [], 0)
