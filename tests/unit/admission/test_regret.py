"""What a long request costs those who come meanwhile, under `displacement: Longest`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.regret import EVIDENCE, REFRESH, WINDOW, Regret, Rush
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Refusal, State, Ticket
from support.admission import admitted, ask, exact_ledger, make_policy, refused

ENGINE = ServiceModel((0.1,), 0.1)
DISPLACING = {"displacement": "Longest"}


def test_at_full_load_the_chance_of_a_loss_grows_evenly_with_the_work_that_waits() -> None:
    """Half of the budget in the way on average, over two short requests' worth of work."""
    assert Rush(1.0, 0.05, 0.1).turned_away(0.2, 0.9, 2.0) == pytest.approx(0.2 * 0.5 / 0.1)


def test_under_light_load_nothing_is_lost() -> None:
    """The budget is hardly ever used up."""
    assert Rush(0.1, 0.001, 0.1).turned_away(0.5, 0.0, 2.0) == 0.0


def test_far_above_the_load_every_second_turns_somebody_away() -> None:
    """As many as fit into the time of the long one."""
    assert Rush(3.0, 0.05, 0.1).turned_away(0.5, 1.0, 2.0) == pytest.approx(5.0)


def test_what_exceeds_the_budget_is_lost_for_certain() -> None:
    """Whoever comes then finds no room at all."""
    rush = Rush(0.1, 0.001, 0.1)
    assert rush.turned_away(0.5, 2.0, 2.0) == pytest.approx(5.0)
    assert rush.turned_away(0.5, 3.0, 2.0) == pytest.approx(5.0)


@settings(deadline=None)
@given(st.floats(0.2, 2.0), st.floats(0.01, 0.5), st.floats(0.0, 1.0), st.floats(0.01, 1.0))
def test_more_load_and_more_waiting_never_lose_less(
    load: float, more: float, ahead: float, seconds: float
) -> None:
    """The loss is between none and all, and grows with load and with the work that waits."""
    few, many = Rush(load, 0.05, 0.1), Rush(load + more, 0.05, 0.1)
    lost = few.turned_away(seconds, ahead, 2.0)
    assert -1e-9 <= lost <= seconds / 0.1 + 1e-9
    assert many.turned_away(seconds, ahead, 2.0) >= lost - 1e-9
    assert few.turned_away(seconds, ahead + more, 2.0) >= lost - 1e-9


def test_a_rush_is_what_was_offered_that_is_shorter() -> None:
    """Load, variance and mean of the shorter ones, shared by the pods."""
    regret = Regret()
    for second in range(EVIDENCE):
        regret.observe(float(second), 0.4)
        regret.observe(float(second), 2.0)
    rush = regret.rush(2.0, 2, float(EVIDENCE), 2.0)
    assert rush is not None
    assert (rush.load, rush.variance, rush.mean) == pytest.approx((0.2, 0.04, 0.2))
    assert regret.rush(0.4, 2, float(EVIDENCE), 2.0) is None
    assert regret.rush(0.0, 2, float(EVIDENCE), 2.0) is None


def test_too_few_offers_say_nothing() -> None:
    """The first requests after a start are not turned away on a guess."""
    regret = Regret()
    for number in range(EVIDENCE - 1):
        regret.observe(number / 100, 0.1)
    assert regret.rush(1.0, 1, 1.0, 2.0) is None


def test_a_burst_counts_as_spread_over_the_budget() -> None:
    """What comes at one instant does not go on at that rate."""
    regret = Regret()
    for _ in range(EVIDENCE):
        regret.observe(5.0, 0.1)
    rush = regret.rush(1.0, 1, 5.0, 8.0)
    assert rush is not None
    assert rush.load == pytest.approx(EVIDENCE * 0.1 / 8.0)
    instant = Regret()
    for _ in range(EVIDENCE):
        instant.observe(5.0, 0.1)
    assert instant.rush(1.0, 1, 5.0, 0.0) is None


def test_old_offers_are_forgotten_and_what_was_worked_out_is_worked_out_again() -> None:
    """A rush that is over no longer counts, and is not asked for at every offer."""
    regret = Regret()
    for number in range(WINDOW - 1):
        regret.observe(number / 100, 0.1)
    before = regret.rush(1.0, 1, 5.1, 2.0)
    regret.observe(5.11, 0.1)
    assert regret.rush(1.0, 1, 5.12, 2.0) is before
    for number in range(WINDOW + REFRESH):
        regret.observe(10.0 + number, 2.0)
    assert regret.rush(1.0, 1, 900.0, 2.0) is None


def rushed_ledger(ended: list[Ticket], **spec: Any) -> Ledger:
    """One pod that is busy for two seconds, after a flood of short requests that were refused."""
    policy = make_policy(**{"queue": DISPLACING, **spec})
    ledger = exact_ledger(policy, ENGINE, ended=ended.append)
    running = admitted(ledger.offer(ask(0, tokens=100, at=0.0), 0.0))
    for number in range(1, 80):
        at = number / 10
        assert isinstance(ledger.offer(ask(number, tokens=2, at=at, budget=0.15), at), Refusal)
    ledger.progressed(running, 8.0, 80)
    return ledger


def test_a_long_request_that_shorter_ones_would_push_out_is_turned_away_at_once() -> None:
    """Two seconds of short work are offered a second, so its turn would not come to anything."""
    ledger = rushed_ledger([])
    refusal = refused(ledger.offer(ask(100, tokens=20, at=8.0, budget=5.0), 8.0))
    assert refusal.reason is Reason.SHORTER_FIRST
    assert refusal.retry_after >= refusal.prediction.wait > 0
    assert isinstance(ledger.offer(ask(101, tokens=2, at=8.0, budget=5.0), 8.0), Ticket)


def test_without_displacement_nobody_is_turned_away_for_shorter_ones() -> None:
    """An admission is a promise, and whoever fits gets one."""
    ledger = rushed_ledger([], queue={"displacement": "Never"})
    admitted(ledger.offer(ask(100, tokens=20, at=8.0, budget=5.0), 8.0))


def waiting_ledger(ended: list[Ticket], **spec: Any) -> tuple[Ledger, Ticket, Ticket]:
    """A long and a short request wait; then come many short ones that cannot be served in time."""
    policy = make_policy(**{"queue": DISPLACING, **spec})
    ledger = exact_ledger(policy, ENGINE, ended=ended.append)
    running = admitted(ledger.offer(ask(0, tokens=10, at=0.0), 0.0))
    admitted(ledger.offer(ask(1, tokens=20, at=0.0, budget=5.0), 0.0))
    admitted(ledger.offer(ask(2, tokens=12, at=0.0, budget=5.0), 0.0))
    for number in range(3, 80):
        at = number / 80
        assert isinstance(ledger.offer(ask(number, tokens=2, at=at, budget=0.1), at), Refusal)
    return ledger, running, ledger.queue[0]


def test_a_long_request_is_given_up_at_its_turn_for_those_that_come() -> None:
    """Once it ran it could not be given up any more, nor may the other pass that costs as much."""
    ended: list[Ticket] = []
    ledger, running, long = waiting_ledger(ended)
    ledger.progressed(running, 1.0, 10)
    ledger.complete(running, 1.0)
    started = ledger.next_start(1.0)
    assert started is not None
    assert started.request.id == "r2"
    assert ended == [long]
    assert (long.state, long.outcome, long.reason) == (
        State.ENDED, Outcome.EXPIRED, Reason.DISPLACED,
    )  # fmt: skip


def rushed_queue(ended: list[Ticket], budget: float, *tokens: int) -> tuple[Ledger, Ticket]:
    """After a second of many short ones, answers of so many tokens wait for the pod's next turn.

    `budget` is that of the first.
    """
    ledger = exact_ledger(make_policy(queue=DISPLACING), ENGINE, ended=ended.append)
    running = admitted(ledger.offer(ask(0, tokens=10, at=0.0), 0.0))
    for number, length in enumerate(tokens, start=1):
        until = budget if number == 1 else 9.0
        admitted(ledger.offer(ask(number, tokens=length, at=0.0, budget=until), 0.0))
    for number in range(10, 90):
        at = number / 90
        assert isinstance(ledger.offer(ask(number, tokens=2, at=at, budget=0.1), at), Refusal)
    ledger.progressed(running, 1.0, 10)
    ledger.complete(running, 1.0)
    return ledger, ledger.queue[0]


def serve(ledger: Ledger, now: float) -> tuple[str, float]:
    """Whose turn it is, and when its answer is whole."""
    ticket = ledger.next_start(now)
    assert ticket is not None
    end = now + ENGINE.alone(0, ticket.request.output_tokens)
    ledger.progressed(ticket, end, ticket.request.output_tokens)
    assert ledger.complete(ticket, end) is Outcome.GOOD
    return ticket.request.id, end


def test_a_long_request_lets_a_shorter_one_pass_while_its_own_promise_holds() -> None:
    """The next long one is no help; once it waits alone it is served, and its wait not learned."""
    ended: list[Ticket] = []
    ledger, long = rushed_queue(ended, 6.0, 20, 20, 2)
    name, now = serve(ledger, 1.0)
    assert name == "r3"
    assert long.overtaken
    ledger.end(ledger.queue[1], Outcome.CANCELLED, now)
    name, now = serve(ledger, now)
    assert (name, round(now, 6)) == ("r1", 3.2)
    assert not ended


def test_nobody_passes_a_request_that_would_be_late_by_it() -> None:
    """It is given up instead, as what would be lost by its start is more than one answer."""
    ended: list[Ticket] = []
    ledger, long = rushed_queue(ended, 3.1, 20, 2)
    assert serve(ledger, 1.0)[0] == "r2"
    assert ended == [long]


def test_who_waits_at_another_gateway_is_not_started_here() -> None:
    """Nobody else is there to pass, so the long one is given up."""
    ended: list[Ticket] = []
    ledger, long = rushed_queue(ended, 6.0, 20)
    ledger.observe_peer("other", [ask(99, tokens=2, at=1.0, budget=9.0)], {}, 1.0)
    assert ledger.next_start(1.0) is None
    assert ended == [long]


@pytest.mark.parametrize(
    "spec",
    [
        {"enforcement": "Observe"},
        {"sizeClasses": [{"name": "long", "minimumTokens": 20, "reservedPercent": 25}]},
    ],
)
def test_nobody_is_given_up_under_observe_or_with_a_reserved_share(spec: dict[str, Any]) -> None:
    """Observe refuses nothing, and a share is there to be used."""
    ended: list[Ticket] = []
    policy = make_policy(queue={**DISPLACING, "order": "FirstInFirstOut"}, **spec)
    ledger = exact_ledger(policy, ENGINE, ended=ended.append)
    running = admitted(ledger.offer(ask(0, tokens=10, at=0.0), 0.0))
    long = admitted(ledger.offer(ask(1, tokens=20, at=0.0, budget=5.0), 0.0))
    admitted(ledger.offer(ask(2, tokens=12, at=0.0, budget=5.0), 0.0))
    for number in range(3, 80):
        ledger.offer(ask(number, tokens=2, at=number / 80, budget=0.1), number / 80)
    ledger.progressed(running, 1.0, 10)
    ledger.complete(running, 1.0)
    assert ledger.next_start(1.0) is long
    assert not ended


def test_who_waits_alone_is_started() -> None:
    """Nobody would win by its going."""
    ended: list[Ticket] = []
    ledger, running, long = waiting_ledger(ended)
    ledger.end(ledger.queue[1], Outcome.CANCELLED, 0.99)
    ledger.progressed(running, 1.0, 10)
    ledger.complete(running, 1.0)
    assert ledger.next_start(1.0) is long


def test_with_several_slots_nobody_is_given_up_unseen() -> None:
    """Without somebody others may end later there, and that would break their promises."""
    ended: list[Ticket] = []
    policy = make_policy(queue=DISPLACING)
    ledger = exact_ledger(policy, ServiceModel((0.1, 0.1), 0.1), ended=ended.append)
    running = [admitted(ledger.offer(ask(n, tokens=10, at=0.0), 0.0)) for n in range(2)]
    long = admitted(ledger.offer(ask(2, tokens=20, at=0.0, budget=5.0), 0.0))
    admitted(ledger.offer(ask(3, tokens=12, at=0.0, budget=5.0), 0.0))
    for number in range(4, 90):
        assert isinstance(
            ledger.offer(ask(number, tokens=2, at=number / 90, budget=0.1), number / 90), Refusal
        )
    for ticket in running:
        ledger.progressed(ticket, 1.1, 10)
        ledger.complete(ticket, 1.1)
    assert ledger.next_start(1.1) is long
    assert not ended
