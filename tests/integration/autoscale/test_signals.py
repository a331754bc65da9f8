"""The signals of a gateway over real sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from punctual_admission.ticket import Request

if TYPE_CHECKING:
    from gateway_stand.stand import Stand
    from integration.gateway.conftest import StartGateway, StartPod

WINDOW: dict[str, Any] = {"load_window": 1}


async def signals(stand: Stand) -> dict[str, Any] | None:
    async with stand.client.get(f"{stand.url}/signals") as response:
        shown = await response.json()
    found: dict[str, Any] | None = shown["signals"]
    return found


async def gauges(stand: Stand) -> set[str]:
    async with stand.client.get(f"{stand.url}/metrics") as response:
        return {line.split("{")[0].split(" ")[0] for line in (await response.text()).splitlines()}


async def test_signals_are_absent_within_the_first_window(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod())
    assert await signals(stand) is None
    assert (await stand.stats())["signals"] is None
    assert "punctual_offered_load" not in await gauges(stand)


async def test_signals_are_in_metrics_and_stats_once_a_window_has_passed(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(), settings=WINDOW)
    await stand.until(lambda: stand.gateway.signals.read() is not None)
    shown = await signals(stand)
    assert shown is not None
    assert shown["offered_load"] == 0
    assert shown["predicted_wait"] == 0
    assert (await stand.stats())["signals"].keys() == shown.keys()
    assert {
        "punctual_offered_load",
        "punctual_queue_wait_p95_seconds",
        "punctual_queue_wait_mean_seconds",
        "punctual_predicted_wait_seconds",
        "punctual_rejections_per_second",
        "punctual_rejection_share",
        "punctual_prediction_ratio",
    } <= await gauges(stand)


async def test_gateway_without_pods_still_tells_what_is_asked_for(
    start_gateway: StartGateway,
) -> None:
    stand = await start_gateway(settings={"load_window": 2})
    await stand.until(lambda: stand.gateway.signals.read() is not None)
    async with stand.complete() as response:
        assert response.status == 503
    await stand.until(lambda: (stand.gateway.signals.read() or EMPTY).arrivals_per_second > 0)
    shown = await signals(stand)
    assert shown is not None
    assert shown["offered_load"] > 0
    assert shown["rejection_share"] == 1
    assert "predicted_wait" not in shown
    assert "queue_wait_p95" not in shown


class EMPTY:
    """Stands for a reading that is not there yet."""

    arrivals_per_second = 0.0


async def test_storm_of_retries_moves_the_offered_work_by_less_than_a_twentieth(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """Every refusal is tried again twice at once, as a client that names its requests does."""
    stand = await start_gateway(await start_pod())

    async def ask(index: int, attempts: int) -> None:
        name = "X-Request-Id" if index % 2 else "Idempotency-Key"
        for attempt in range(attempts):
            headers = {"X-Deadline-Ms": "1", name: f"storm-{attempts}-{index}"}
            if index % 3 == 0:
                headers = {"X-Deadline-Ms": "1", "x-stainless-retry-count": str(attempt)}
            async with stand.complete(16, headers=headers) as response:
                assert response.status == 503

    await stand.until(lambda: bool(stand.gateway.scheduler.ledger.all_pods))
    await asyncio.gather(*(ask(index, 1) for index in range(60)))
    calm = stand.gateway.offered_work
    await asyncio.gather(*(ask(index, 3) for index in range(60)))
    storm = stand.gateway.offered_work - calm
    assert calm > 0
    assert abs(storm / calm - 1) < 0.05
    assert stand.outcomes()["refused"] == 240


async def test_work_of_a_long_body_that_is_refused_unread_counts(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod())
    async with stand.client.post(
        f"{stand.url}/v1/completions",
        json={"model": "lab", "prompt": "x" * 400_000, "max_tokens": 1},
        headers={"X-Deadline-Ms": "1"},
    ) as response:
        assert response.status == 503
    assert stand.gateway.offered_work > 0


async def test_offered_work_follows_the_lengths_that_answers_really_have(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    """Callers ask for 64 tokens and stop after a quarter: the pool is sized for what comes."""
    stand = await start_gateway(await start_pod(), estimate={"outputLength": "Learned"})
    signals_of, ledger = stand.gateway.signals, stand.gateway.scheduler.ledger
    asked = Request("a", 10, 64, 0.0, 9.0)
    most = signals_of.arrive(asked, {}) or 0.0
    for _ in range(200):
        ledger.lengths.observe(asked, 16)
    engine = ledger.pods[0].engine
    assert most == pytest.approx(engine.cost(10, 64))
    assert signals_of.arrive(asked, {}) == pytest.approx(engine.cost(10, 16))
