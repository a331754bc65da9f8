"""Each rule of the decision: what it refuses, what it lets pass, and that it takes nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Reason
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import State
from support.admission import Certain, admitted, ask, exact_ledger, make_policy, refused

ONE_SLOT = ServiceModel((0.1,))
"""Ten tokens a second, no prefill."""


def full_ledger(**spec: Any) -> Ledger:
    """One pod that is busy for a second."""
    ledger = exact_ledger(make_policy(**spec), ONE_SLOT, rng=random.Random(1))
    admitted(ledger.offer(ask(0, tokens=11), 0.0))
    return ledger


def test_without_pods_everything_is_refused_as_pool_exhausted() -> None:
    """An empty pool is its own reason, in every mode, and a retry may help."""
    for mode in ("Unlimited", "Bounded", "Deadline", "Predictive"):
        refusal = refused(exact_ledger(make_policy(mode=mode)).offer(ask(1), 0.0))
        assert refusal.reason is Reason.POOL_EXHAUSTED
        assert refusal.prediction.pods == 0
        assert refusal.retry_may_help


def test_a_draining_ledger_refuses_and_says_so() -> None:
    """`draining` comes before every other reason, pods or none."""
    ledger = exact_ledger(make_policy())
    ledger.draining = True
    assert refused(ledger.offer(ask(1), 0.0)).reason is Reason.DRAINING


def test_unlimited_lets_everything_join() -> None:
    """A hundred requests wait, hopeless ones among them."""
    ledger = full_ledger(mode="Unlimited")
    for number in range(1, 101):
        admitted(ledger.offer(ask(number, tokens=100, budget=0.1), 0.0))
    assert len(ledger.queue) == 100


def test_a_queue_of_no_places_admits_only_what_starts_at_once() -> None:
    """`maximumRequests: 0` is a loss system."""
    ledger = full_ledger(mode="Bounded", queue={"maximumRequests": 0})
    refusal = refused(ledger.offer(ask(1), 0.0))
    assert refusal.reason is Reason.QUEUE_FULL
    assert refusal.retry_after == pytest.approx(1.0, rel=0.5)


def test_queued_work_is_limited_in_gpu_seconds() -> None:
    """A second request of 0.9 s passes a limit of 1 s once, not twice."""
    ledger = full_ledger(queue={"maximumWorkMilliseconds": 1000})
    admitted(ledger.offer(ask(1, tokens=10), 0.0))
    assert refused(ledger.offer(ask(2, tokens=10), 0.0)).reason is Reason.WORK_LIMIT
    admitted(ledger.offer(ask(3, tokens=2), 0.0))


def test_in_flight_work_leaves_its_headroom_free() -> None:
    """Of 2 s in flight 10 % stay free: 1 s running and 0.9 s more do not fit, 0.7 s do."""
    ledger = full_ledger(pool={"maximumWorkMilliseconds": 2000})
    refusal = refused(ledger.offer(ask(1, tokens=10), 0.0))
    assert refusal.reason is Reason.POOL_HEADROOM_EXHAUSTED
    assert refusal.prediction.backlog == pytest.approx(1.0)
    admitted(ledger.offer(ask(2, tokens=8), 0.0))


def test_a_deadline_that_the_queue_ahead_would_break_is_refused() -> None:
    """1 s of work ahead and 0.5 s of one's own do not fit into 1.4 s, and fit into 1.6 s."""
    ledger = full_ledger()
    refusal = refused(ledger.offer(ask(1, tokens=6, budget=1.4), 0.0))
    assert refusal.reason is Reason.DEADLINE_UNREACHABLE
    assert refusal.prediction.wait == pytest.approx(1.0)
    assert refusal.prediction.service == pytest.approx(0.5)
    assert refusal.retry_may_help
    assert admitted(ledger.offer(ask(2, tokens=6, budget=1.6), 0.0)).state is State.QUEUED


def test_time_spent_before_the_decision_counts_against_the_deadline() -> None:
    """The budget runs from arrival: what reading the body took is gone."""
    ledger = exact_ledger(make_policy(), ONE_SLOT)
    refusal = refused(ledger.offer(ask(1, tokens=6, at=0.0, budget=0.6), 0.2))
    assert refusal.prediction.spent == pytest.approx(0.2)
    admitted(ledger.offer(ask(2, tokens=6, at=0.2, budget=0.6), 0.2))


def test_no_retry_is_advised_when_an_empty_pool_is_too_slow() -> None:
    """A request longer than its deadline can never be on time."""
    refusal = refused(full_ledger().offer(ask(1, tokens=30, budget=2.0), 0.0))
    assert not refusal.retry_may_help


def test_a_forecast_that_is_a_moment_old_predicts_no_wait_before_now() -> None:
    """Within its age one forecast serves several decisions, and each says the same of memory."""
    ledger = exact_ledger(make_policy(), ONE_SLOT)
    for now in (1.0, 1.001):
        refusal = refused(ledger.offer(ask(1, tokens=100_000, at=now), now))
        assert refusal.reason is Reason.DEADLINE_UNREACHABLE
        assert refusal.prediction.wait == 0.0


def test_a_newcomer_that_would_make_a_resident_late_is_refused() -> None:
    """With a free slot the newcomer itself is in time, but its neighbour would slow down."""
    ledger = exact_ledger(make_policy(), ServiceModel((0.1, 0.15)))
    admitted(ledger.offer(ask(0, tokens=11, budget=1.1), 0.0))
    refusal = refused(ledger.offer(ask(1, tokens=11, budget=9.0), 0.0))
    assert refusal.reason is Reason.DEADLINE_UNREACHABLE
    assert refusal.prediction.excess < 0


def test_another_pod_takes_the_newcomer_that_would_disturb_the_fastest() -> None:
    """The pod with the earliest end comes first; where it cannot, the next one is tried."""
    fast, slow = ServiceModel((0.1, 0.15)), ServiceModel((0.16, 0.2))
    ledger = exact_ledger(make_policy(), fast, slow)
    first = admitted(ledger.offer(ask(0, tokens=11, budget=1.1), 0.0))
    second = admitted(ledger.offer(ask(1, tokens=11, budget=9.0), 0.0))
    assert (first.pod, second.pod) == ("pod-0", "pod-1")


def test_the_numbers_of_the_best_pod_are_reported_when_none_fits() -> None:
    """A refusal on two idle pods quotes the faster one."""
    ledger = exact_ledger(make_policy(), ServiceModel((0.2,)), ServiceModel((0.1,)))
    refusal = refused(ledger.offer(ask(0, tokens=11, budget=0.5), 0.0))
    assert refusal.prediction.service == pytest.approx(1.0)


def test_a_refusal_takes_nothing() -> None:
    """Queue, work and the next decision are as they were."""
    ledger = full_ledger()
    before = (len(ledger.queue), ledger.queued_work, ledger.running)
    refused(ledger.offer(ask(1, tokens=600), 0.0))
    assert (len(ledger.queue), ledger.queued_work, ledger.running) == before


def test_observe_admits_and_remembers_what_it_would_have_refused() -> None:
    """`enforcement: Observe` refuses nothing, drops nothing, and marks the ticket."""
    ledger = full_ledger(enforcement="Observe")
    ticket = admitted(ledger.offer(ask(1, tokens=30, budget=0.5), 0.0))
    assert ticket.would_refuse is Reason.DEADLINE_UNREACHABLE
    ledger.wake(1.0)
    assert list(ledger.queue) == [ticket]


def test_observe_cannot_run_what_no_pod_can_take() -> None:
    """Without pods `Observe` refuses as well."""
    ledger = exact_ledger(make_policy(enforcement="Observe"))
    assert refused(ledger.offer(ask(1), 0.0)).reason is Reason.POOL_EXHAUSTED


def test_the_margin_refuses_what_only_just_fits() -> None:
    """A prediction of 1.5 s fits 1.55 s as it stands, not with the prior of 8 %."""
    plain = Ledger(make_policy(), services=Certain())
    plain.join_pod("pod-0", ONE_SLOT, 0.0)
    admitted(plain.offer(ask(0, tokens=11), 0.0))
    refusal = refused(plain.offer(ask(1, tokens=6, budget=1.55), 0.0))
    assert refusal.prediction.margin == pytest.approx(1.08)
    admitted(full_ledger().offer(ask(1, tokens=6, budget=1.55), 0.0))


def test_an_earlier_deadline_goes_ahead_and_may_not_hurt_those_behind() -> None:
    """Earliest deadline first: the urgent one overtakes, unless that makes a promise break."""
    ledger = full_ledger()
    relaxed = admitted(ledger.offer(ask(1, tokens=11, budget=2.5), 0.0))
    urgent = admitted(ledger.offer(ask(2, tokens=4, budget=1.4), 0.0))
    assert list(ledger.queue) == [urgent, relaxed]
    assert relaxed.overtaken
    assert not urgent.overtaken
    assert refused(ledger.offer(ask(3, tokens=4, budget=1.35), 0.0)).prediction.excess < 0


def test_first_in_first_out_keeps_the_order_whatever_the_deadlines() -> None:
    """An urgent request stands behind those who came first."""
    ledger = full_ledger(queue={"order": "FirstInFirstOut"})
    first = admitted(ledger.offer(ask(1, tokens=2, budget=5.0), 0.0))
    second = admitted(ledger.offer(ask(2, tokens=2, budget=2.0), 0.0))
    assert list(ledger.queue) == [first, second]
