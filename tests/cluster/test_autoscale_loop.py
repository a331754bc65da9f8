"""The whole loop: requests, gateway, adapter, operator's objects, API server, the real autoscaler.

Everything is the product's own or Kubernetes' own, but for nodes: the test plays the kubelet, with
virtual model pods; and for the clock, on which all times of the loop are 7.5 times as short
(loopstand.clock). Numbers of seconds here are those of the usual clock. Requests come open loop at
random times; loads are in pods of work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from loopstand import Loop, Stand, quick, running
from loopstand.clock import SYNC_SECONDS
from loopstand.loop import ADAPTER, GATEWAY, POOL
from loopstand.record import replay, steps, without_flickers
from testcluster.cluster import Cluster

CAUGHT_UP = 90.0
"""Seconds from a step, and the start of a pod, until hardly anything may be refused."""
FIRST = 90.0
"""Seconds until a gateway's first window is full."""
ENOUGH = 4
"""Fewest pods for a load of 3 at 70 %, a tenth of tolerance included."""
long = pytest.mark.autoscale

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def loop(own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    """The parts that all scenarios share."""
    with running(own_cluster, tmp_path_factory.mktemp("loop")) as found:
        yield found


@pytest.fixture
async def stand(loop: Loop, own_namespace: str) -> AsyncIterator[Stand]:
    """One pod and its gateway; the autoscaler waits two minutes before it scales down."""
    async with loop.scenario(own_namespace, scaleDownStabilisationSeconds=120) as found:
        yield found


def assert_arithmetic_agrees(stand: Stand) -> None:
    """The laboratory's autoscaler decides the same on the same values, at most two looks apart."""
    looks = [one for one in stand.recorder.looks if one.decided]
    real = steps((one.at, one.decided) for one in looks)
    apart = 2 * SYNC_SECONDS
    simulated = without_flickers(replay(looks, stand.recorder.spec), apart)
    common = min(len(real), len(simulated))
    # of what happens at the very end one of them may not have had the time
    assert all(at > looks[-1].at - apart for at, _ in real[common:] + simulated[common:])
    assert [count for _, count in simulated[:common]] == [count for _, count in real[:common]]
    for (at, _), (there, _) in zip(simulated[1:common], real[1:common], strict=True):
        assert abs(at - there) <= apart


async def test_step_of_the_load_is_caught_up_within_a_pod_start_and_ninety_seconds(
    stand: Stand,
) -> None:
    """From 0.6 to 4.8 pods of work, and to nothing; each decision is the one of the laboratory."""
    _, begun, ended = await stand.play((0.6, FIRST), (4.8, 60 + CAUGHT_UP + 60))
    await stand.until(lambda: stand.recorder.last.replicas == 1, "the pool is small", quick(600))
    await stand.play((0.0, 45))
    print(stand.describe(begun))
    caught_up = begun + stand.pod_start + quick(CAUGHT_UP)
    assert stand.load.between(caught_up, ended).refused < 0.01
    assert not stand.load.all.lost
    assert 6 <= max(stand.recorder.counts(begun, ended)) <= 9
    assert_arithmetic_agrees(stand)


@long
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_steady_load_hardly_changes_the_count(
    loop: Loop, own_namespace: str, seed: int
) -> None:
    """At most once in twenty minutes, with a stabilisation of five minutes; an hour in three."""
    steady = {"pods": 4, "scaleDownStabilisationSeconds": 300}
    async with loop.scenario(own_namespace, **steady) as stand:
        begun, settled, ended = await stand.play((2.6, 360), (2.6, 1200), seed=seed)
        print(stand.describe(settled))
        assert len(stand.recorder.counts(settled, ended)) - 1 <= 1
        assert stand.load.between(begun + quick(FIRST), ended).refused < 0.01
        assert not stand.load.all.lost
        assert_arithmetic_agrees(stand)


@long
async def test_rising_load_is_followed_without_refusals_and_without_a_step_back(
    stand: Stand,
) -> None:
    _, begun, _, ended = await stand.play(
        (0.5, FIRST), (lambda at: 0.5 + 4.5 * at / quick(900), 900), (5.0, 300)
    )
    print(stand.describe(begun))
    counts = stand.recorder.counts(begun, ended)
    assert counts == sorted(counts)
    assert stand.load.between(begun, ended).refused < 0.01
    assert not stand.load.all.lost
    assert_arithmetic_agrees(stand)


@long
async def test_short_burst_costs_refusals_while_it_lasts_and_none_afterwards(stand: Stand) -> None:
    """A minute of six pods of work, twice, and else one: each time once up and once down."""
    times = await stand.play((1.0, 300), (6.0, 60), (1.0, 540), (6.0, 60), (1.0, 300))
    print(stand.describe(times[1]))
    for burst in (1, 3):
        begun, over, until = times[burst : burst + 3]
        assert stand.load.between(over + quick(30), until).refused < 0.01
        counts = stand.recorder.counts(begun, until)
        top = counts.index(max(counts))
        assert counts == sorted(counts[:top]) + sorted(counts[top:], reverse=True)
    assert not stand.load.all.lost
    assert_arithmetic_agrees(stand)


@long
async def test_pool_shrinks_to_its_minimum_and_grows_again_without_a_lost_request(
    stand: Stand,
) -> None:
    """Requests go on, few of them, while the pods are taken away."""
    _, fallen, risen, ended = await stand.play((3.0, 360), (0.3, 420), (3.0, 360))
    print(stand.describe(fallen))
    assert min(stand.recorder.counts(fallen, risen)) == 1
    assert stand.recorder.last.replicas >= ENOUGH
    assert not stand.load.all.lost
    assert stand.load.between(fallen + quick(15), risen).refused < 0.01
    caught_up = risen + stand.pod_start + quick(CAUGHT_UP)
    assert stand.load.between(caught_up, ended).refused < 0.01
    assert_arithmetic_agrees(stand)


@long
async def test_pool_grows_although_every_request_is_refused_for_minutes(
    loop: Loop, own_namespace: str
) -> None:
    """The only pod has failed, and new ones take four minutes to start."""
    async with loop.scenario(own_namespace, pod_start=240) as stand:
        await stand.play((0.6, FIRST))
        stand.fail_pool()
        begun, ended = await stand.play((3.0, 240 + CAUGHT_UP + 90))
        print(stand.describe(begun))
        assert stand.load.between(begun + quick(15), begun + quick(240)).refused == 1
        grown = [one.at for one in stand.recorder.looks if one.replicas >= ENOUGH]
        assert grown
        assert grown[0] - begun <= quick(CAUGHT_UP)
        assert stand.load.between(begun + stand.pod_start + quick(CAUGHT_UP), ended).refused < 0.01
        assert not stand.load.all.lost
        assert_arithmetic_agrees(stand)


@long
async def test_pool_is_frozen_as_long_as_the_adapter_is_down(loop: Loop, stand: Stand) -> None:
    """Neither a load that falls nor one that rises moves it; afterwards the fallen one does."""
    await stand.play((3.0, 300))
    before = stand.recorder.last.replicas
    loop.adapter.stop(kill=True)
    try:
        down, _, ended = await stand.play((0.0, 480), (6.0, 240))
    finally:
        loop.adapter.start(*ADAPTER)
    print(stand.describe(down))
    assert stand.recorder.counts(down, ended) == [before]
    await stand.until(lambda: stand.recorder.last.replicas == 1, "the pool is small", quick(600))


@long
async def test_pool_does_not_shrink_when_the_gateway_dies_or_is_replaced(stand: Stand) -> None:
    """A gateway that has just begun knows no load yet; the pool keeps its size meanwhile."""
    await stand.play((3.0, 360))
    begun = time.monotonic()
    stand.gateway_process().process.kill()
    await stand.play((3.0, 420))
    rollout = asyncio.create_task(stand.roll_out(GATEWAY))
    await stand.play((3.0, 420))
    await rollout
    print(stand.describe(begun))
    counts = stand.recorder.counts(begun, time.monotonic())
    assert min(counts) >= ENOUGH
    assert max(counts) <= 2 * ENOUGH


@long
async def test_rolling_update_of_the_model_does_not_double_the_pool(stand: Stand) -> None:
    """Surge pods are not taken for a need; requests are answered throughout."""
    await stand.play((3.0, 360))
    begun = time.monotonic()
    before = stand.recorder.last.replicas
    rollout = asyncio.create_task(stand.roll_out(POOL))
    await stand.play((3.0, 450))
    await rollout
    await stand.play((3.0, 200))
    ended = time.monotonic()
    print(stand.describe(begun))
    assert max(one.pods for one in stand.recorder.between(begun, ended)) > before
    assert before <= min(stand.recorder.counts(begun, ended))
    assert max(stand.recorder.counts(begun, ended)) <= before + 1
    assert stand.load.between(begun, ended).refused < 0.01
    assert not stand.load.all.lost
