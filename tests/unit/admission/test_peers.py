"""Several gateways over one pool: one merged queue, and a slot is for whoever is first in it."""

from __future__ import annotations

import random

from punctual_admission.ledger import Ledger
from punctual_admission.peers import PATIENCE
from punctual_admission.pool import Foreign
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Request, State
from support.admission import admitted, ask, exact_ledger, make_policy, refused

MODEL = ServiceModel((0.1,), 0.1)
PEER = "other"


def elsewhere(number: int, *, tokens: int = 5, at: float = 0.0, budget: float = 10.0) -> Request:
    return ask(100 + number, tokens=tokens, at=at, budget=budget)


def busy(**spec: object) -> Ledger:
    """A pod with one slot, on which a peer's request has five tokens to make."""
    ledger = exact_ledger(make_policy(**spec), MODEL)
    ledger.observe_peer(PEER, [], {"pod-0": [Foreign(5)]}, 0.0)
    return ledger


def test_what_waits_elsewhere_is_ahead_of_a_newcomer() -> None:
    ledger = busy()
    alone = admitted(ledger.offer(ask(1, tokens=5), 0.0)).prediction.wait
    other = busy()
    other.observe_peer(PEER, [elsewhere(1)], {"pod-0": [Foreign(5)]}, 0.0)
    behind = admitted(other.offer(ask(1, tokens=5, at=0.01), 0.01)).prediction.wait
    assert behind > alone + 0.4


def test_a_full_queue_elsewhere_refuses_here() -> None:
    ledger = busy()
    waiting = [elsewhere(number, budget=1.9) for number in range(4)]
    ledger.observe_peer(PEER, waiting, {"pod-0": [Foreign(5)]}, 0.0)
    refused(ledger.offer(ask(1, tokens=5, budget=2.0), 0.0))
    ledger.observe_peer(PEER, waiting[:1], {"pod-0": [Foreign(5)]}, 0.0)
    admitted(ledger.offer(ask(2, tokens=5, budget=2.0), 0.0))


def test_only_the_own_count_as_waiting_here() -> None:
    ledger = busy()
    ledger.observe_peer(PEER, [elsewhere(1)], {"pod-0": [Foreign(5)]}, 0.0)
    own = admitted(ledger.offer(ask(1, tokens=5, at=0.1), 0.1))
    assert list(ledger.own_queue) == [own]
    assert len(ledger.queue) == 2
    assert ledger.own_queued_work * 2 == ledger.queued_work
    ledger.lose_peer(PEER)
    assert list(ledger.queue) == [own]
    assert ledger.own_queued_work == ledger.queued_work


def test_a_free_slot_is_for_the_first_in_the_merged_queue() -> None:
    ledger = busy()
    ledger.observe_peer(PEER, [elsewhere(1)], {"pod-0": [Foreign(1)]}, 0.0)
    own = admitted(ledger.offer(ask(1, tokens=5, at=0.1), 0.1))
    ledger.observe_peer(PEER, [elsewhere(1)], {}, 0.5)
    assert ledger.next_start(0.5) is None
    ledger.observe_peer(PEER, [], {"pod-0": [Foreign(5, 0)]}, 0.505)
    assert ledger.next_start(0.505) is None
    ledger.observe_peer(PEER, [], {}, 1.1)
    assert ledger.next_start(1.1) is own


def test_a_gateway_that_does_not_take_its_turn_is_overtaken() -> None:
    ledger = busy()
    ledger.observe_peer(PEER, [elsewhere(1)], {"pod-0": [Foreign(1)]}, 0.0)
    own = admitted(ledger.offer(ask(1, tokens=5, at=0.1), 0.1))
    ledger.observe_peer(PEER, [elsewhere(1)], {}, 0.5)
    assert ledger.next_start(0.5) is None
    assert ledger.next_wakeup() == 0.5 + PATIENCE
    assert ledger.next_start(0.5 + PATIENCE / 2) is None
    assert ledger.next_start(0.5 + PATIENCE) is own


def test_with_two_free_slots_both_may_start() -> None:
    ledger = exact_ledger(make_policy(), ServiceModel((0.1, 0.1), 0.1))
    ledger.observe_peer(PEER, [elsewhere(1)], {"pod-0": [Foreign(3), Foreign(3)]}, 0.0)
    own = admitted(ledger.offer(ask(1, tokens=5, at=0.1), 0.1))
    ledger.observe_peer(PEER, [elsewhere(1)], {}, 0.5)
    assert ledger.next_start(0.5) is own


def test_nobody_here_waits_for_a_pod_that_others_wait_for() -> None:
    ledger = busy()
    ledger.observe_peer(PEER, [elsewhere(1, budget=1.0)], {}, 0.0)
    assert ledger.next_start(0.0) is None
    assert ledger.next_wakeup() == 1.0
    ledger.wake(1.0)
    assert not ledger.queue
    assert not ledger.own_queue


def test_in_order_of_arrival_who_is_heard_of_later_stands_behind() -> None:
    ledger = busy(queue={"order": "FirstInFirstOut"})
    own = admitted(ledger.offer(ask(1, tokens=5), 0.0))
    ledger.observe_peer(PEER, [elsewhere(1)], {"pod-0": [Foreign(5)]}, 0.1)
    assert [ticket.peer for ticket in ledger.queue] == ["", PEER]
    ledger.apply_policy(make_policy(queue={"order": "FirstInFirstOut"}))
    assert ledger.queue[0] is own


def test_who_waits_elsewhere_is_not_given_up_here() -> None:
    ledger = busy(queue={"displacement": "Longest"})
    waiting = [elsewhere(1, tokens=64, budget=7.0)]
    ledger.observe_peer(PEER, waiting, {"pod-0": [Foreign(5)]}, 0.0)
    refused(ledger.offer(ask(1, tokens=5, budget=7.2), 0.0))
    assert len(ledger.queue) == 1


def test_a_start_into_a_slot_that_was_taken_teaches_nothing() -> None:
    ledger = exact_ledger(make_policy(), MODEL)
    ticket = admitted(ledger.offer(ask(1, tokens=5), 0.0))
    ledger.observe_peer(PEER, [], {"pod-0": [Foreign(5, 0)]}, 0.002)
    assert ticket.crowded
    ledger.progressed(ticket, 0.7, 5)
    ledger.complete(ticket, 1.1)
    assert ledger.all_pods[0].speed.value == 1.0


def test_who_is_overtaken_by_another_gateway_does_not_teach_how_long_waits_are() -> None:
    ledger = busy()
    first = admitted(ledger.offer(ask(1, tokens=5, budget=5.0), 0.0))
    ledger.observe_peer(PEER, [elsewhere(1)], {"pod-0": [Foreign(5)]}, 0.1)
    last = admitted(ledger.offer(ask(2, tokens=5, at=0.2, budget=20.0), 0.2))
    ledger.observe_peer(PEER, [], {"pod-0": [Foreign(5)]}, 0.3)
    assert first.overtaken
    assert not last.overtaken


def test_a_pods_own_report_and_what_peers_say_add_up() -> None:
    ledger = busy()
    ledger.observe_foreign("pod-0", [Foreign(2)])
    assert [one.remaining for one in ledger.all_pods[0].foreign] == [2, 5]
    ledger.observe_peer(PEER, [], {}, 0.1)
    assert [one.remaining for one in ledger.all_pods[0].foreign] == [2]
    ledger.observe_foreign("nowhere", [Foreign(2)])


def test_more_on_a_pod_than_it_has_slots_is_forecast_as_a_queue() -> None:
    rng = random.Random(1)
    for _ in range(200):
        ledger = exact_ledger(make_policy(), ServiceModel((0.1, 0.12), 0.05), MODEL)
        for number in range(6):
            ledger.offer(ask(number, tokens=rng.randint(1, 9)), 0.0)
        foreign = [Foreign(rng.randint(1, 9), rng.choice((None, 3))) for _ in range(4)]
        ledger.observe_peer(PEER, [elsewhere(1)], {"pod-0": foreign, "pod-1": foreign[:2]}, 0.0)
        for ticket in [t for pod in ledger.all_pods for t in pod.residents.values()]:
            if rng.random() < 0.5:
                ledger.progressed(ticket, 0.01)
        answer = admitted(ledger.offer(ask(9, tokens=3, budget=99.0), 0.02))
        assert answer.state is State.QUEUED
        assert all(end < 99 for end in ledger.forecast(0.02).ends())
