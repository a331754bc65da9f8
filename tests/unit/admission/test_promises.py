"""Properties of the whole core on virtual time: every world is simulated to its end."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import Policy
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import State
from punctual_lab.simulate.world import Arrival, PodSpec, Record, World
from support.admission import Certain, make_policy

MODES = ["Unlimited", "Bounded", "Deadline", "Predictive"]
TOLERANCE = 1e-6


@st.composite
def engines(draw: st.DrawFn) -> ServiceModel:
    """A pod of 1 to 4 slots whose step time grows with the batch."""
    slots = draw(st.integers(1, 4))
    first = draw(st.integers(1, 20)) / 1000
    growth = draw(st.integers(0, 5)) / 1000
    steps = tuple(first + growth * extra for extra in range(slots))
    return ServiceModel(steps, draw(st.integers(0, 20)) / 1000, draw(st.integers(0, 3)) / 10_000)


@st.composite
def arrivals(draw: st.DrawFn) -> Arrival:
    """A request somewhere in two seconds, bursts included."""
    return Arrival(
        at=draw(st.integers(0, 40)) / 20,
        prompt_tokens=draw(st.integers(0, 50)),
        max_tokens=draw(st.sampled_from([1, 2, 4, 16, 64])),
        budget=draw(st.integers(1, 60)) / 30,
    )


@st.composite
def queues(draw: st.DrawFn) -> dict[str, Any]:
    """Order and displacement."""
    return {
        "order": draw(st.sampled_from(["EarliestDeadlineFirst", "FirstInFirstOut"])),
        "displacement": draw(st.sampled_from(["Never", "Longest"])),
        "maximumRequests": draw(st.integers(0, 5)),
    }


pods_strategy = st.lists(engines(), min_size=1, max_size=3)
arrivals_strategy = st.lists(arrivals(), min_size=1, max_size=40)


def play(policy: Policy, models: list[ServiceModel], load: list[Arrival]) -> World:
    """Run the load through exact engines and return the world at its end."""
    pods = [PodSpec(model) for model in models]
    world = World(policy, pods, sojourns=Certain(), services=Certain())
    world.run(load)
    return world


def lateness(record: Record) -> float:
    """Seconds after the deadline."""
    assert record.ended is not None
    return record.ended - record.arrival.at - record.arrival.budget


@settings(max_examples=400, deadline=None)
@given(pods_strategy, arrivals_strategy, queues())
def test_nothing_admitted_is_late_when_estimates_are_exact(
    models: list[ServiceModel], load: list[Arrival], queue: dict[str, Any]
) -> None:
    """Predictive, any pods, slots, lengths, deadlines and order, with and without displacement."""
    policy = make_policy(queue=queue, estimate={"speed": "Fixed"}, overdue="Finish")
    world = play(policy, models, load)
    for record in world.records:
        if record.outcome is Outcome.EXPIRED:
            assert record.reason is Reason.DISPLACED
        elif record.outcome is not Outcome.REFUSED:
            assert record.outcome in (Outcome.GOOD, Outcome.LATE)
            assert lateness(record) <= TOLERANCE


def test_whoever_comes_at_the_end_of_a_step_joins_at_once() -> None:
    """52 steps of 15 ms have passed when the second comes: the next begins with its prefill."""
    policy = make_policy(estimate={"speed": "Fixed"}, overdue="Finish")
    load = [Arrival(0.75, 0, 64, 1.0), Arrival(1.55, 0, 1, 1 / 30)]
    world = play(policy, [ServiceModel((0.015, 0.015), 0.02)], load)
    assert [record.outcome for record in world.records] == [Outcome.GOOD, Outcome.GOOD]
    assert world.records[1].ended == pytest.approx(1.57)


def dense_world(seed: int) -> tuple[list[ServiceModel], list[Arrival], dict[str, Any]]:
    """An overloaded world of continuous times, so that many promises are as tight as can be."""
    rng = random.Random(seed)
    models = []
    for _ in range(rng.randint(1, 3)):
        first, growth = rng.uniform(0.001, 0.02), rng.uniform(0, 0.005)
        steps = tuple(first + growth * extra for extra in range(rng.randint(1, 4)))
        models.append(ServiceModel(steps, rng.uniform(0, 0.02), rng.uniform(0, 0.0003)))
    deadlines = rng.choice([[1.0], [0.3, 1.0, 2.0]])
    load = [
        Arrival(
            rng.uniform(0, 2), rng.randint(0, 50), rng.choice([1, 2, 4, 16, 64]),
            rng.choice(deadlines),
        )
        for _ in range(rng.randint(20, 150))
    ]  # fmt: skip
    queue = {
        "order": rng.choice(["EarliestDeadlineFirst", "FirstInFirstOut"]),
        "displacement": rng.choice(["Never", "Longest"]),
    }
    return models, load, queue


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9))
def test_nothing_admitted_is_late_under_dense_overload(seed: int) -> None:
    """The same promise where the queue is never empty and every deadline is contested."""
    models, load, queue = dense_world(seed)
    world = play(
        make_policy(queue=queue, estimate={"speed": "Fixed"}, overdue="Finish"), models, load
    )
    for record in world.records:
        if record.outcome is Outcome.EXPIRED:
            assert record.reason is Reason.DISPLACED
        elif record.outcome is not Outcome.REFUSED:
            assert lateness(record) <= TOLERANCE


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9))
def test_nothing_admitted_is_late_where_shorter_ones_pass(seed: int) -> None:
    """One slot under a long overload, where displacement looks ahead and changes the order."""
    rng = random.Random(seed)
    model = ServiceModel((rng.uniform(0.005, 0.02),), rng.uniform(0, 0.02))
    budgets, rate = rng.choice([[2.0], [0.5, 2.0, 3.0]]), rng.uniform(8, 25)
    load = [
        Arrival(number / rate, 0, rng.choice([1, 4, 4, 16, 16, 64]), rng.choice(budgets))
        for number in range(200)
    ]
    queue = {
        "order": rng.choice(["EarliestDeadlineFirst", "FirstInFirstOut"]),
        "displacement": "Longest",
    }
    policy = make_policy(queue=queue, estimate={"speed": "Fixed"}, overdue="Finish")
    for record in play(policy, [model], load).records:
        if record.outcome is Outcome.EXPIRED:
            assert record.reason is Reason.DISPLACED
        elif record.outcome is not Outcome.REFUSED:
            assert lateness(record) <= TOLERANCE


@settings(max_examples=200, deadline=None)
@given(pods_strategy, arrivals_strategy, queues())
def test_first_tokens_are_on_time_when_estimates_are_exact(
    models: list[ServiceModel], load: list[Arrival], queue: dict[str, Any]
) -> None:
    """With objective FirstToken the first token of every admitted request meets the deadline."""
    policy = make_policy(
        queue=queue, estimate={"speed": "Fixed"}, objective="FirstToken", overdue="Finish"
    )
    world = play(policy, models, load)
    for record in world.records:
        ticket = record.ticket
        if ticket is not None and ticket.first_token is not None:
            assert ticket.first_token <= ticket.request.deadline + TOLERANCE
        elif ticket is not None:
            assert record.reason is Reason.DISPLACED


@settings(max_examples=200, deadline=None)
@given(pods_strategy, arrivals_strategy, queues(), st.sampled_from(MODES))
def test_every_request_ends_exactly_once_and_nothing_is_left(
    models: list[ServiceModel], load: list[Arrival], queue: dict[str, Any], mode: str
) -> None:
    """Conservation: one outcome each, and an empty ledger and empty pods at the end."""
    world = play(make_policy(mode=mode, queue=queue), models, load)
    assert len(world.records) == len(load)
    for record in world.records:
        assert record.outcome is not None
        if record.ticket is not None:
            assert record.ticket.state is State.ENDED
            assert record.ticket.outcome is record.outcome
    assert not world.ledger.queue
    assert world.ledger.queued_work == 0
    assert world.ledger.running == 0
    assert all(engine.load == 0 for engine in world.engines.values())


@settings(max_examples=200, deadline=None)
@given(pods_strategy, arrivals_strategy, st.sampled_from(MODES))
def test_equal_budgets_start_in_order_of_arrival(
    models: list[ServiceModel], load: list[Arrival], mode: str
) -> None:
    """Earliest deadline first keeps the order of arrival where budgets are equal."""
    equal = [Arrival(a.at, a.prompt_tokens, a.max_tokens, 1.5) for a in load]
    world = play(make_policy(mode=mode), models, equal)
    started = [record.started for record in world.records if record.started is not None]
    assert started == sorted(started)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(0, 6), st.integers(1, 40),
    st.sampled_from(["Bounded", "Deadline"]),
)  # fmt: skip
def test_a_burst_admits_one_for_each_slot_and_place(
    slots: int, pods: int, places: int, size: int, mode: str
) -> None:
    """A request that finds an idle engine runs from that instant and does not count as waiting."""
    policy = make_policy(mode=mode, queue={"maximumRequests": places})
    model = ServiceModel((0.01,) * slots)
    burst = [Arrival(1.0, 0, 4, 100.0) for _ in range(size)]
    world = play(policy, [model] * pods, burst)
    good = sum(record.outcome is Outcome.GOOD for record in world.records)
    assert good == min(size, slots * pods + places)


@settings(max_examples=150, deadline=None)
@given(pods_strategy, arrivals_strategy, queues(), st.data())
def test_a_refusal_changes_nothing(
    models: list[ServiceModel], load: list[Arrival], queue: dict[str, Any], data: st.DataObject
) -> None:
    """The world plays on the same whether or not hopeless requests were offered in between."""
    policy = make_policy(queue=queue, estimate={"speed": "Fixed"}, overdue="Finish")
    hopeless = [Arrival(data.draw(st.integers(0, 40)) / 20 + 0.001, 0, 1000, 0.5) for _ in range(3)]
    alone = play(policy, models, load)
    disturbed = play(policy, models, [*load, *hopeless])
    kept = [record for record in disturbed.records if record.arrival not in hopeless]
    assert [(r.outcome, r.ended) for r in kept] == [(r.outcome, r.ended) for r in alone.records]


@pytest.mark.parametrize("displacement", ["Never", "Longest"])
def test_displacement_answers_more_in_time(displacement: str) -> None:
    """Giving up one long request lets two short ones be on time."""
    policy = make_policy(
        queue={"displacement": displacement}, estimate={"speed": "Fixed"}, overdue="Finish"
    )
    load = [
        Arrival(0.0, 0, 10, 1.0),
        Arrival(0.01, 0, 80, 1.0),
        Arrival(0.02, 0, 40, 1.0),
        Arrival(0.03, 0, 40, 1.0),
    ]
    world = play(policy, [ServiceModel((0.01,), 0.01)], load)
    good = sum(record.outcome is Outcome.GOOD for record in world.records)
    assert good == (3 if displacement == "Longest" else 2)
