"""The ledger: how tickets start, move and end, and what pods, time and policy do to them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.pool import Foreign
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import State, Ticket
from support.admission import admitted, ask, exact_ledger, make_policy, refused

SLOW = ServiceModel((0.1,))
PAIR = ServiceModel((0.1, 0.1))


def answer(ledger: Ledger, ticket: Ticket, start: float, step: float = 0.1) -> float:
    """Let a running ticket make all its tokens, one each `step`; returns the time of the last."""
    now = start
    for number in range(ticket.request.output_tokens):
        now = start + step * number
        ledger.progressed(ticket, now)
    return now


def test_a_ticket_runs_at_once_when_a_slot_is_free_and_starts_when_one_falls_free() -> None:
    """The second waits until the first is complete."""
    ledger = exact_ledger(make_policy(), SLOW)
    first = admitted(ledger.offer(ask(1, tokens=3), 0.0))
    second = admitted(ledger.offer(ask(2, tokens=3), 0.0))
    assert (first.state, first.pod, second.state) == (State.RUNNING, "pod-0", State.QUEUED)
    assert ledger.next_start(0.0) is None
    end = answer(ledger, first, 0.0)
    assert ledger.complete(first, end) is Outcome.GOOD
    assert ledger.next_start(end) is second
    assert ledger.next_start(end) is None
    assert second.prediction.wait == pytest.approx(0.2)


def test_a_completed_answer_after_its_deadline_is_late() -> None:
    """The outcome is measured, not predicted."""
    ledger = exact_ledger(make_policy(mode="Unlimited"), SLOW)
    ticket = admitted(ledger.offer(ask(1, tokens=3, budget=0.1), 0.0))
    assert ledger.complete(ticket, answer(ledger, ticket, 0.0)) is Outcome.LATE


def test_under_first_token_only_the_first_token_has_to_be_on_time() -> None:
    """The rest may come after the deadline."""
    ledger = exact_ledger(make_policy(objective="FirstToken"), SLOW)
    ticket = admitted(ledger.offer(ask(1, tokens=30, budget=0.1), 0.0))
    assert ledger.complete(ticket, answer(ledger, ticket, 0.05)) is Outcome.GOOD


def test_an_answer_without_a_token_counts_from_its_end() -> None:
    """A pod may end an answer at once (a stop string, an empty completion)."""
    ledger = exact_ledger(make_policy(objective="FirstToken"), SLOW)
    ticket = admitted(ledger.offer(ask(1, tokens=3, budget=1.0), 0.0))
    assert ledger.complete(ticket, 1.5) is Outcome.LATE


def test_a_ticket_ends_exactly_once() -> None:
    """A second end is an error of the driver, and changes nothing."""
    ledger = exact_ledger(make_policy(), SLOW)
    ticket = admitted(ledger.offer(ask(1), 0.0))
    ledger.end(ticket, Outcome.CANCELLED, 0.0)
    with pytest.raises(RuntimeError, match="must end once"):
        ledger.end(ticket, Outcome.FAILED, 0.0)
    with pytest.raises(RuntimeError, match="must run"):
        ledger.progressed(ticket, 0.0)
    assert ticket.outcome is Outcome.CANCELLED


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.FAILED, Outcome.LATE])
def test_only_completed_work_teaches(outcome: Outcome) -> None:
    """Cancelled, failed and cut-off work changes neither speed nor margins."""
    ledger = Ledger(make_policy())
    pod = ledger.join_pod("pod-0", SLOW, 0.0)
    ticket = admitted(ledger.offer(ask(1, tokens=4), 0.0))
    ledger.progressed(ticket, 3.0)
    ledger.end(ticket, outcome, 9.0)
    assert pod.speed.value == 1.0
    assert ledger.services.records == ledger.sojourns.records == 0


def test_a_slow_pod_is_tracked_and_predictions_follow() -> None:
    """Twice the time a token: after a few answers the forecast is near twice as long."""
    ledger = Ledger(make_policy(mode="Unlimited"))
    pod = ledger.join_pod("pod-0", SLOW, 0.0)
    now = 0.0
    for number in range(20):
        ticket = admitted(ledger.offer(ask(number, tokens=11, at=now), now))
        now = answer(ledger, ticket, now, step=0.2)
        ledger.complete(ticket, now)
        now += 1.0
    assert pod.speed.value == pytest.approx(2.0, rel=0.02)
    late = refused_after(ledger, now)
    assert late.prediction.service == pytest.approx(2.0, rel=0.02)


def refused_after(ledger: Ledger, now: float) -> Any:
    """Switch to Predictive and ask for what only a pod at the model's speed could do."""
    ledger.apply_policy(make_policy())
    return refused(ledger.offer(ask(99, tokens=11, at=now, budget=1.5), now))


def test_neighbours_and_their_prefills_do_not_look_like_a_slow_pod() -> None:
    """The expected service of a ticket counts the batch it really ran in."""
    model = ServiceModel((0.1, 0.15), prefill_base=0.05)
    ledger = Ledger(make_policy())
    pod = ledger.join_pod("pod-0", model, 0.0)
    first = admitted(ledger.offer(ask(1, tokens=3), 0.0))
    ledger.progressed(first, 0.05)
    second = admitted(ledger.offer(ask(2, tokens=2), 0.05))
    ledger.progressed(second, 0.10)
    for ticket in (first, second):
        ledger.progressed(ticket, 0.25)
    ledger.complete(second, 0.25)
    ledger.progressed(first, 0.35)
    ledger.complete(first, 0.35)
    assert pod.speed.value == pytest.approx(1.0)


def test_whoever_reaches_the_front_too_late_is_dropped_unstarted() -> None:
    """Mode Deadline: no engine time is spent on an answer that would be late."""
    ended: list[Ticket] = []
    ledger = exact_ledger(make_policy(mode="Deadline"), SLOW, ended=ended.append)
    first = admitted(ledger.offer(ask(1, tokens=11), 0.0))
    hopeless = admitted(ledger.offer(ask(2, tokens=11, budget=1.5), 0.0))
    possible = admitted(ledger.offer(ask(3, tokens=4, budget=1.6), 0.0))
    ledger.complete(first, answer(ledger, first, 0.0))
    assert ledger.next_start(1.0) is possible
    assert ended == [hopeless]
    assert (hopeless.outcome, hopeless.reason) == (Outcome.EXPIRED, Reason.DEADLINE_EXCEEDED)


def test_mode_deadline_drops_at_once_what_an_idle_engine_cannot_do_in_time() -> None:
    """The returned ticket has ended, and the listener was told."""
    ended: list[Ticket] = []
    ledger = exact_ledger(make_policy(mode="Deadline"), SLOW, ended=ended.append)
    ticket = admitted(ledger.offer(ask(1, tokens=30, budget=1.0), 0.0))
    assert ticket.state is State.ENDED
    assert ended == [ticket]
    assert ledger.running == 0


def test_the_queue_is_woken_at_its_earliest_deadline() -> None:
    """A request whose deadline passes while it waits is dropped then."""
    ended: list[Ticket] = []
    for order in ("EarliestDeadlineFirst", "FirstInFirstOut"):
        ledger = exact_ledger(
            make_policy(mode="Deadline", queue={"order": order}), SLOW, ended=ended.append
        )
        assert ledger.next_wakeup() == float("inf")
        admitted(ledger.offer(ask(1, tokens=40, budget=9.0), 0.0))
        admitted(ledger.offer(ask(2, budget=3.0), 0.0))
        second = admitted(ledger.offer(ask(3, budget=2.0), 0.0))
        assert ledger.next_wakeup() == 2.0
        ledger.wake(1.9)
        assert len(ledger.queue) == 2
        ledger.wake(2.0)
        assert ended.pop() is second
        assert ledger.next_wakeup() == 3.0


@pytest.mark.parametrize("mode", ["Unlimited", "Bounded"])
def test_modes_without_deadlines_never_expire_anybody(mode: str) -> None:
    """They answer late instead."""
    ledger = exact_ledger(make_policy(mode=mode), SLOW)
    admitted(ledger.offer(ask(1, tokens=30), 0.0))
    waiting = admitted(ledger.offer(ask(2, budget=0.5), 0.0))
    assert ledger.next_wakeup() == float("inf")
    ledger.wake(5.0)
    assert list(ledger.queue) == [waiting]


def test_a_pod_that_refused_is_left_alone_for_a_while() -> None:
    """The ticket waits again, and starts elsewhere or after the pause."""
    ledger = exact_ledger(make_policy(), SLOW)
    ticket = admitted(ledger.offer(ask(1, tokens=3), 0.0))
    ledger.requeue(ticket, 0.1, pause_pod=0.5)
    assert (ticket.state, ticket.pod) == (State.QUEUED, None)
    assert ledger.next_start(0.2) is None
    assert ledger.next_wakeup() == pytest.approx(0.6)
    newcomer = admitted(ledger.offer(ask(2, tokens=3), 0.2))
    assert newcomer.state is State.QUEUED
    assert newcomer.prediction.wait == pytest.approx(0.6)
    assert ledger.next_start(0.6) is ticket
    assert ticket.dispatches == 2


def test_a_requeued_ticket_goes_to_another_pod() -> None:
    """The paused pod has a free slot, but is passed over."""
    ledger = exact_ledger(make_policy(), SLOW, SLOW)
    ticket = admitted(ledger.offer(ask(1, tokens=3), 0.0))
    assert ticket.pod == "pod-0"
    ledger.requeue(ticket, 0.1, pause_pod=0.5)
    assert ledger.next_start(0.1) is ticket
    assert ticket.pod == "pod-1"


def test_the_next_in_the_queue_goes_where_it_ends_first() -> None:
    """Two pods come at once: the faster one takes it."""
    ledger = exact_ledger(make_policy(mode="Unlimited"), ServiceModel((0.5,)))
    admitted(ledger.offer(ask(0, tokens=9), 0.0))
    waiting = admitted(ledger.offer(ask(1, tokens=9, budget=30.0), 0.0))
    ledger.join_pod("slow", ServiceModel((0.2,)), 0.0)
    ledger.join_pod("fast", ServiceModel((0.1,)), 0.0)
    assert ledger.next_start(0.1) is waiting
    assert waiting.pod == "fast"


def test_a_suspended_pod_takes_no_work_and_keeps_its_residents() -> None:
    """Its state is unknown, not idle."""
    ledger = exact_ledger(make_policy(), SLOW)
    ticket = admitted(ledger.offer(ask(1, tokens=3), 0.0))
    ledger.suspend_pod("pod-0")
    ledger.suspend_pod("pod-0")
    ledger.suspend_pod("nobody")
    assert refused(ledger.offer(ask(2), 0.0)).reason is Reason.POOL_EXHAUSTED
    assert ledger.running == 1
    ledger.join_pod("pod-0", SLOW, 0.1)
    assert ledger.complete(ticket, answer(ledger, ticket, 0.2)) is Outcome.GOOD


def test_a_pod_that_left_is_forgotten_when_its_last_request_has_ended() -> None:
    """Its running requests are handed back, for the driver to move or to end."""
    ledger = exact_ledger(make_policy(), SLOW, SLOW)
    ticket = admitted(ledger.offer(ask(1, tokens=3), 0.0))
    assert list(ledger.leave_pod("pod-0")) == [ticket]
    assert list(ledger.leave_pod("pod-1")) == []
    assert list(ledger.leave_pod("pod-1")) == []
    assert [pod.id for pod in ledger.all_pods] == ["pod-0"]
    ledger.end(ticket, Outcome.FAILED, 0.1)
    assert ledger.all_pods == []


def test_a_pod_that_comes_back_is_the_same_pod() -> None:
    """Residents and speed survive, the service model is the newly published one."""
    ledger = exact_ledger(make_policy(), SLOW)
    ticket = admitted(ledger.offer(ask(1, tokens=3), 0.0))
    ledger.leave_pod("pod-0")
    pod = ledger.join_pod("pod-0", PAIR, 0.0)
    assert ticket.sequence in pod.residents
    assert pod.free_slots == 1
    ledger.end(ticket, Outcome.CANCELLED, 0.1)
    assert ledger.all_pods == [pod]


def test_the_work_of_other_gateways_takes_slots_and_time() -> None:
    """What a pod runs for others delays our newcomer; what waits there goes first."""
    ledger = exact_ledger(make_policy(), PAIR)
    ledger.observe_foreign("nobody", [Foreign(1)])
    ledger.observe_foreign("pod-0", [Foreign(5), Foreign(9), Foreign(3, unstarted_prompt_tokens=7)])
    ticket = admitted(ledger.offer(ask(1, tokens=3), 0.0))
    assert ticket.state is State.QUEUED
    assert ticket.prediction.wait == pytest.approx(0.7)
    assert ledger.running_work == pytest.approx(0.1 / 2 * (5 + 9 + 2))
    ledger.observe_foreign("pod-0", [])
    assert ledger.next_start(0.1) is ticket


def test_a_foreign_request_that_has_not_started_makes_the_newcomer_wait_for_its_prefill() -> None:
    """Another gateway's request was sent to a free slot a moment ago."""
    ledger = exact_ledger(make_policy(), ServiceModel((0.1, 0.1), prefill_base=0.2))
    ledger.observe_foreign("pod-0", [Foreign(3, unstarted_prompt_tokens=7)])
    ticket = admitted(ledger.offer(ask(1, tokens=3), 0.0))
    assert ticket.state is State.RUNNING
    assert ticket.prediction.wait == pytest.approx(0.2)


def test_more_foreign_requests_than_slots_are_taken_in_turn() -> None:
    """A pod that reports more running requests than slots does not break the forecast."""
    ledger = exact_ledger(make_policy(), PAIR)
    ledger.observe_foreign("pod-0", [Foreign(5), Foreign(9), Foreign(12)])
    ticket = admitted(ledger.offer(ask(1, tokens=3), 0.0))
    assert ticket.prediction.wait > 0.5


def test_a_changed_policy_drops_nobody_and_reorders_the_queue() -> None:
    """From first in first out to earliest deadline first, with a new confidence and speed."""
    ledger = exact_ledger(make_policy(queue={"order": "FirstInFirstOut"}), SLOW)
    admitted(ledger.offer(ask(0, tokens=11), 0.0))
    relaxed = admitted(ledger.offer(ask(1, budget=9.0), 0.0))
    urgent = admitted(ledger.offer(ask(2, budget=3.0), 0.0))
    assert list(ledger.queue) == [relaxed, urgent]
    ledger.apply_policy(make_policy(estimate={"speed": "Fixed", "confidencePercent": 90}))
    assert list(ledger.queue) == [urgent, relaxed]
    assert [pod.speed.value for pod in ledger.pods] == [1.0]


def test_a_cancelled_request_frees_its_place_in_the_queue() -> None:
    """Cancelled in the middle of the queue, with its work."""
    ledger = exact_ledger(make_policy(), SLOW)
    tickets = [admitted(ledger.offer(ask(n, tokens=3), 0.0)) for n in range(4)]
    ledger.end(tickets[2], Outcome.CANCELLED, 0.0)
    assert list(ledger.queue) == [tickets[1], tickets[3]]
    assert ledger.queued_work == pytest.approx(0.4)


def test_an_overdue_step_is_never_forecast_to_end_in_the_past() -> None:
    """A pod that hangs for a second: the newcomer's wait is counted from now."""
    ledger = exact_ledger(make_policy(mode="Unlimited"), SLOW)
    first = admitted(ledger.offer(ask(1, tokens=3, budget=60.0), 0.0))
    ledger.progressed(first, 0.0)
    late = admitted(ledger.offer(ask(2, tokens=2, at=2.0), 2.0))
    assert late.prediction.wait >= 0.1
    idle_neighbour = exact_ledger(make_policy(mode="Unlimited"), PAIR)
    resident = admitted(idle_neighbour.offer(ask(1, tokens=9, budget=60.0), 0.0))
    idle_neighbour.progressed(resident, 0.0)
    joined = admitted(idle_neighbour.offer(ask(2, tokens=2, at=2.0), 2.0))
    assert joined.started == 2.0
    assert joined.prediction.wait == pytest.approx(0.0)


def test_a_request_that_outlives_its_estimate_has_one_token_left() -> None:
    """More tokens than announced never make the remaining work negative."""
    ledger = exact_ledger(make_policy(mode="Unlimited"), SLOW)
    first = admitted(ledger.offer(ask(1, tokens=2), 0.0))
    ledger.progressed(first, 0.1, tokens=5)
    assert first.remaining == 1
    second = admitted(ledger.offer(ask(2, at=0.1), 0.1))
    assert second.prediction.wait == pytest.approx(0.1)


def test_jitter_comes_from_the_generator_that_was_handed_in() -> None:
    """So that a simulation can be repeated."""
    one, two = (Ledger(make_policy(), rng=random.Random(7)) for _ in range(2))
    assert one.jitter() == two.jitter()
