"""Whole worlds on virtual time: retries, cut-offs, slowdowns, determinism, conservation."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from punctual_admission.outcomes import Outcome
from punctual_admission.service_time import ServiceModel
from punctual_lab.experiments import reference
from punctual_lab.load.retry import IgnoreRetryAfter, ObeyRetryAfter
from punctual_lab.simulate.margins import NoMargin
from punctual_lab.simulate.world import Arrival, PodSpec, Record, World
from support.admission import make_policy

ONE = ServiceModel((0.01,), 0.01)
FOUR = ServiceModel((0.01, 0.011, 0.012, 0.013), 0.02)


def noisy(seed: int) -> PodSpec:
    """A pod with 5 % noise."""
    rng = random.Random(seed)
    return PodSpec(FOUR, noise=lambda: max(0.5, rng.gauss(1, 0.05)))


def outcomes(records: list[Record]) -> list[tuple[Outcome | None, float | None]]:
    """How and when each ended."""
    return [(record.outcome, record.ended) for record in records]


def busy_load(seed: int) -> list[Arrival]:
    """About twice what two pods of four slots can do, callers stopping early."""
    rng = random.Random(seed)
    at, load = 0.0, []
    for _ in range(400):
        at += rng.expovariate(60.0)
        tokens = rng.choice([4, 16, 64])
        load.append(Arrival(at, rng.randint(0, 40), tokens, 1.0, rng.randint(1, tokens)))
    return load


@pytest.mark.parametrize("mode", ["Unlimited", "Bounded", "Deadline", "Predictive"])
@pytest.mark.parametrize("overdue", ["Finish", "Cancel"])
def test_the_same_seed_gives_the_same_world(mode: str, overdue: str) -> None:
    """Two runs agree in every outcome and every instant, noise included."""
    policy = make_policy(mode=mode, overdue=overdue)
    runs = [World(policy, [noisy(1), noisy(2)], seed=5).run(busy_load(3)) for _ in range(2)]
    assert outcomes(runs[0]) == outcomes(runs[1])


@pytest.mark.parametrize("mode", ["Unlimited", "Bounded", "Deadline", "Predictive"])
@pytest.mark.parametrize("overdue", ["Finish", "Cancel"])
def test_every_request_ends_and_the_world_is_empty_afterwards(mode: str, overdue: str) -> None:
    """Conservation with noise, early stops and several pods."""
    world = World(make_policy(mode=mode, overdue=overdue), [noisy(1), noisy(2)])
    load = busy_load(4)
    records = world.run(load)
    assert len(records) == len(load)
    assert all(record.outcome is not None for record in records)
    assert not world.ledger.queue
    assert world.ledger.running == 0
    assert all(engine.load == 0 for engine in world.engines.values())


def test_work_done_is_the_engines_busy_time() -> None:
    """On one slot the services of the answered requests fill exactly the busy time."""
    world = World(make_policy(mode="Deadline", overdue="Finish"), [PodSpec(ONE)])
    records = world.run([Arrival(i * 0.05, 0, 16, 1.0) for i in range(200)])
    served = sum(record.started is not None for record in records)
    assert world.engines["pod-0"].busy_seconds == pytest.approx(served * ONE.alone(0, 16))


def test_work_past_its_deadline_is_cut_off() -> None:
    """`overdue: Cancel` ends a request at its deadline, and the next one starts then."""
    policy = make_policy(mode="Bounded", overdue="Cancel")
    world = World(policy, [PodSpec(ONE)])
    records = world.run([Arrival(0.0, 0, 1000, 1.0), Arrival(0.5, 0, 10, 5.0)])
    assert outcomes(records)[0] == (Outcome.LATE, 1.0)
    assert records[1].started == 1.0


def test_a_first_token_in_time_is_not_cut_off() -> None:
    """With the objective FirstToken the rest of the answer may take its time."""
    policy = make_policy(mode="Bounded", overdue="Cancel", objective="FirstToken")
    records = World(policy, [PodSpec(ONE)]).run([Arrival(0.0, 0, 500, 1.0)])
    assert records[0].outcome is Outcome.GOOD


def test_a_refused_client_comes_back_as_it_is_told() -> None:
    """Attempts are chained, and the retry arrives after the delay of the refusal."""
    policy = make_policy(mode="Bounded", queue={"maximumRequests": 0})
    world = World(policy, [PodSpec(ONE)], retry=ObeyRetryAfter())
    first, second, third = world.run([Arrival(0.0, 0, 50, 2.0), Arrival(0.1, 0, 4, 2.0)])
    assert first.outcome is Outcome.GOOD
    assert second.outcome is Outcome.REFUSED
    assert second.retry is third
    assert second.refusal is not None
    assert third.attempt == 2
    assert third.outcome is Outcome.GOOD
    assert third.ended == pytest.approx(0.1 + second.refusal.retry_after + ONE.alone(0, 4))


def test_clients_give_up_after_their_last_attempt() -> None:
    """Five attempts against a pool that never has room."""
    policy = make_policy(mode="Bounded", queue={"maximumRequests": 0})
    world = World(policy, [PodSpec(ONE)], retry=IgnoreRetryAfter())
    records = world.run([Arrival(0.0, 0, 5000, 100.0), Arrival(0.1, 0, 4, 2.0)])
    assert Counter(record.attempt for record in records) == {1: 2, 2: 1, 3: 1, 4: 1, 5: 1}


def test_tracking_follows_a_slowdown() -> None:
    """The speed ratio of the pod comes to the true factor."""
    world = World(make_policy(), [PodSpec(ONE)])
    world.slow_down(5.0, 2.0)
    world.run([Arrival(i * 0.3, 0, 8, 2.0) for i in range(60)])
    (pod,) = world.ledger.pods
    assert pod.speed.value == pytest.approx(2.0, rel=0.01)


def test_a_belief_that_differs_from_the_truth_is_corrected() -> None:
    """A pod that is slower than published, and whose probe did not show it."""
    slow = ServiceModel((0.02,), 0.02)
    world = World(make_policy(), [PodSpec(slow, believed=ONE)])
    world.run([Arrival(i * 0.5, 0, 8, 2.0) for i in range(40)])
    (pod,) = world.ledger.pods
    assert pod.speed.value == pytest.approx(2.0, rel=0.01)


def test_no_margin_stays_at_one() -> None:
    """Whatever it is told."""
    margin = NoMargin()
    margin.observe(2.0, 1.0)
    margin.set_confidence(0.5)
    assert margin.factor == 1.0


def test_the_reference_workload_has_the_load_it_is_asked_for() -> None:
    """Engine seconds asked for per second, within sampling error."""
    arrivals = reference.reference_arrivals(1.5, 3000.0, 1)
    drawn = reference.offered_load(arrivals, 3000.0, reference.reference_model())
    assert drawn == pytest.approx(1.5, rel=0.05)
