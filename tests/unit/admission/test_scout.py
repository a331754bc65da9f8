"""Scouts: answers without a promise, of kinds that are refused because of their length."""

from __future__ import annotations

import json
from typing import Any

import pytest

from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.output_length import ENOUGH, NEIGHBOURS, OUTDATED, WINDOW
from punctual_admission.policy import Policy
from punctual_admission.recording.player import Player
from punctual_admission.recording.recorder import record
from punctual_admission.scout import CREDIT_SECONDS
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import State, Ticket
from support.admission import admitted, ask, exact_ledger, make_policy, refused

MODEL = ServiceModel((0.01,), 0.01)
WIDE = ServiceModel((0.01, 0.012), 0.01)
BUDGET = 0.5
"""Seconds that are enough for 50 tokens of MODEL."""


ESTIMATE = {"outputLength": "Learned", "speed": "Fixed"}


def learning(**spec: Any) -> Policy:
    """Lengths are learned."""
    return make_policy(**{"estimate": ESTIMATE, **spec})


def grown(*models: ServiceModel, answers: int = ENOUGH, prompts: int = 1, **spec: Any) -> Ledger:
    """A ledger that has seen answers of 90 tokens, of at most 100, to prompts so far apart."""
    ledger = exact_ledger(learning(**spec), *(models or (MODEL,)))
    return teach(ledger, answers, prompts)


def teach(ledger: Ledger, answers: int = ENOUGH, prompts: int = 1) -> Ledger:
    """It sees such answers."""
    for number in range(answers):
        ledger.lengths.observe(ask(number, tokens=100, prompt=number % prompts), 90)
    return ledger


def offer(ledger: Ledger, at: float, budget: float = BUDGET, prompt: int = 0) -> Any:
    """Offer one more of that kind."""
    return ledger.offer(ask(0, tokens=100, at=at, budget=budget, prompt=prompt), at)


def finish(ledger: Ledger, ticket: Ticket, at: float, tokens: int = 20) -> Outcome:
    """The whole answer comes."""
    ledger.progressed(ticket, at, tokens)
    return ledger.complete(ticket, at)


def test_who_is_refused_by_what_was_learned_scouts_on_an_idle_pod() -> None:
    """It counts as all that it can make until it is cut."""
    ticket = admitted(offer(grown(), 1.0))
    assert ticket.scouts
    assert ticket.state is State.RUNNING
    assert ticket.expected_tokens == 50.0
    assert ticket.prediction.service == pytest.approx(0.5)


def test_who_fits_by_what_was_learned_is_no_scout() -> None:
    assert not admitted(offer(grown(), 1.0, budget=0.95)).scouts


@pytest.mark.parametrize("whole", [False, True])
def test_a_scout_that_is_late_is_followed_after_a_while(whole: bool) -> None:
    """Cut off, or whole and late; whoever comes in between is refused as before."""
    ledger = grown()
    ticket = admitted(offer(ledger, 1.0))
    if whole:
        assert finish(ledger, ticket, 1.6, 70) is Outcome.LATE
    else:
        ledger.end(ticket, Outcome.LATE, 1.6)
    refusal = refused(offer(ledger, 2.0))
    assert refusal.reason is Reason.DEADLINE_UNREACHABLE
    refused(offer(ledger, 0.97 * CREDIT_SECONDS))
    assert admitted(offer(ledger, 1.0 + CREDIT_SECONDS)).scouts


@pytest.mark.parametrize(("certainty", "refusals"), [(99, 100), (90, 10)])
def test_of_many_who_are_refused_a_share_scouts(certainty: int, refusals: int) -> None:
    """As many may be late as the certainty of lengths allows."""
    ledger = grown(estimate=ESTIMATE | {"lengthCertaintyPercent": certainty})
    for _ in range(3):
        ledger.end(admitted(offer(ledger, 1.0)), Outcome.LATE, 1.0)
        for _ in range(refusals):
            refused(offer(ledger, 1.0))


def test_who_is_likely_to_be_in_time_scouts_before_others() -> None:
    """One of 64 neighbours was too long for it: it stakes a 64th of a late answer."""
    ledger = grown()
    for number in range(NEIGHBOURS):
        ledger.lengths.observe(ask(number, tokens=100, prompt=500), 90 if number == 0 else 10)
    for number in range(NEIGHBOURS):
        ledger.lengths.observe(ask(number, tokens=100, prompt=700), 90)
    ledger.end(admitted(offer(ledger, 1.0, prompt=700)), Outcome.LATE, 1.0)
    for _ in range(2):
        refused(offer(ledger, 1.0, prompt=500))
    refused(offer(ledger, 1.0, prompt=700))
    length = admitted(offer(ledger, 1.0, prompt=500)).length
    assert length is not None
    assert length.stake == pytest.approx(1 / NEIGHBOURS)


def test_several_scouts_share_what_may_be_staked() -> None:
    """Of those whose chances are even, two may run at once."""
    ledger = grown(ServiceModel((0.01,) * 8, 0.01))
    for number in range(NEIGHBOURS // 2):
        ledger.lengths.observe(ask(number, tokens=100), 10)
    answers = [offer(ledger, 1.0) for _ in range(3)]
    assert [isinstance(answer, Ticket) for answer in answers] == [True, True, False]


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.FAILED])
def test_a_scout_of_which_nothing_came_teaches_and_costs_nothing(outcome: Outcome) -> None:
    ledger = grown()
    before = ledger.lengths.describe()
    ledger.end(admitted(offer(ledger, 1.0)), outcome, 1.1)
    assert ledger.lengths.describe() == before
    assert admitted(offer(ledger, 1.2)).scouts


@pytest.mark.parametrize("prompts", [1, 40])
def test_scouts_that_are_in_time_bring_the_kind_back(prompts: int) -> None:
    """One after the other, at once, whatever is left in the window of the time before."""
    ledger, now, scouts = grown(answers=WINDOW, prompts=prompts), 0.0, 0
    while (ticket := admitted(offer(ledger, now, prompt=0))).scouts:
        assert finish(ledger, ticket, now + 0.2) is Outcome.GOOD
        now, scouts = now + 0.3, scouts + 1
    assert scouts == NEIGHBOURS
    assert ticket.expected_tokens == pytest.approx(20.0)


def test_outdated_answers_make_room_for_those_of_scouts() -> None:
    """By itself the window forgets the oldest of all prompts, which others may keep young."""
    for others, records in ((OUTDATED, ENOUGH + OUTDATED), (10, ENOUGH + 10 + 1)):
        ledger = grown()
        for number in range(others):
            ledger.lengths.observe(ask(number, tokens=100, prompt=9000), 10)
        finish(ledger, admitted(offer(ledger, 1.0)), 1.2)
        (known,) = ledger.lengths.describe()
        assert known.records == records


def test_scouts_of_one_kind_do_not_hold_up_another() -> None:
    """Maxima of another size have a budget of their own."""
    ledger = grown()
    ledger.end(admitted(offer(ledger, 1.0)), Outcome.LATE, 1.5)
    refused(offer(ledger, 1.9))
    for number in range(ENOUGH):
        ledger.lengths.observe(ask(number, tokens=1000), 900)
    assert admitted(ledger.offer(ask(1, tokens=1000, at=2.0, budget=BUDGET), 2.0)).scouts


def test_nobody_scouts_while_a_slot_is_missing_or_somebody_waits() -> None:
    ledger = grown()
    admitted(offer(ledger, 1.0, budget=1.5))
    assert refused(offer(ledger, 1.0)).reason is Reason.DEADLINE_UNREACHABLE
    waiting = admitted(offer(ledger, 1.0, budget=3.0))
    assert waiting.state is State.QUEUED
    assert refused(offer(ledger, 1.0)).reason is Reason.DEADLINE_UNREACHABLE


def test_nobody_scouts_on_a_pod_that_is_left_alone() -> None:
    """It has just sent work back."""
    ledger = grown()
    ledger.requeue(admitted(offer(ledger, 1.0, budget=2.0)), 1.0, pause_pod=9.0)
    ledger.end(ledger.own_queue[0], Outcome.CANCELLED, 1.1)
    refused(offer(ledger, 1.2))


def test_a_scout_shares_a_pod_whose_residents_stay_in_time() -> None:
    """It expects the speed of its batch; who has no room for it keeps it away."""
    for budget, scouts in ((9.0, True), (0.905, False)):
        ledger = grown(WIDE)
        resident = admitted(offer(ledger, 0.0, budget=budget))
        ledger.progressed(resident, 0.01)
        answer = offer(ledger, 0.01)
        if scouts:
            assert admitted(answer).expected_tokens == pytest.approx(41.0)
            assert admitted(answer).prediction.service <= BUDGET
        else:
            refused(answer)


def test_who_comes_behind_a_scout_counts_on_its_whole_time() -> None:
    """A promise must hold also if the scout is cut at its deadline; nobody knows better."""
    ledger = grown()
    ledger.progressed(admitted(offer(ledger, 0.0)), 0.1, 10)
    for number in range(ENOUGH):
        ledger.lengths.observe(ask(number, tokens=10), 10)
    refused(ledger.offer(ask(1, tokens=10, at=0.1, budget=0.49), 0.1))
    behind = admitted(ledger.offer(ask(2, tokens=10, at=0.1, budget=0.51), 0.1))
    assert 0.1 + behind.prediction.wait == pytest.approx(BUDGET)


def test_nobody_is_refused_for_the_sake_of_a_scout() -> None:
    """Whoever joins its pod makes it slower, and it was promised nothing."""
    ledger = grown(WIDE)
    scout = admitted(offer(ledger, 0.0))
    ledger.progressed(scout, 0.01)
    assert not admitted(ledger.offer(ask(1, tokens=30, at=0.02), 0.02)).scouts


def test_a_maximum_out_of_reach_scouts_until_it_is_known() -> None:
    """1000 tokens take 10 s, the deadline allows 50; then what scouts may cost is limited."""
    ledger, now = exact_ledger(learning(), WIDE), 0.0
    for _ in range(ENOUGH):
        ticket = admitted(ledger.offer(ask(1, tokens=1000, at=now, budget=BUDGET), now))
        assert ticket.scouts
        assert refused(ledger.offer(ask(2, tokens=1000, at=now, budget=BUDGET), now)).retry_may_help
        ledger.end(ticket, Outcome.LATE, now + BUDGET)
        now += 1.0
    ticket = admitted(ledger.offer(ask(3, tokens=1000, at=now, budget=BUDGET), now))
    assert ticket.scouts
    ledger.end(ticket, Outcome.LATE, now)
    refused(ledger.offer(ask(4, tokens=1000, at=now, budget=BUDGET), now))


@pytest.mark.parametrize(
    ("slots", "pods", "scouts"), [(1, 1, 1), (1, 3, 3), (2, 1, 1), (3, 2, 3), (8, 1, 4)]
)
def test_half_of_all_slots_are_left_to_others(slots: int, pods: int, scouts: int) -> None:
    """Each may hold one for the whole of its deadline; each pod may have one."""
    ledger = exact_ledger(learning(), *[ServiceModel((0.01,) * slots)] * pods)
    answers = [ledger.offer(ask(number, tokens=1000, budget=BUDGET), 0.0) for number in range(9)]
    assert sum(isinstance(answer, Ticket) for answer in answers) == scouts


@pytest.mark.parametrize(
    "spec",
    [{"objective": "FirstToken"}, {"overdue": "Finish"}, {"enforcement": "Observe"}],
)
def test_only_what_is_cut_at_its_deadline_scouts(spec: dict[str, Any]) -> None:
    """Who may go on after its deadline counts as what was learned."""
    answer = offer(grown(**spec), 1.0)
    assert not isinstance(answer, Ticket) or not answer.scouts


def test_nobody_scouts_whose_deadline_is_shorter_than_a_prefill() -> None:
    """Not one token would come."""
    for objective in ("Completion", "FirstToken"):
        refused(offer(grown(objective=objective), 1.0, budget=0.005))


def test_nobody_scouts_where_the_maximum_is_known_to_be_the_length() -> None:
    """Nothing is learned, so there is nothing to find out."""
    ledger = exact_ledger(make_policy(), MODEL)
    assert refused(offer(ledger, 1.0)).reason is Reason.DEADLINE_UNREACHABLE


def test_who_is_refused_for_another_reason_is_no_scout() -> None:
    ledger = grown()
    ledger.draining = True
    assert refused(offer(ledger, 1.0)).reason is Reason.DRAINING


def test_who_would_fit_is_no_scout_when_another_is_in_the_way() -> None:
    """It was not refused for its length, but for the sake of a promise."""
    ledger = grown(WIDE)
    resident = admitted(offer(ledger, 0.0, budget=0.905))
    ledger.progressed(resident, 0.01)
    refused(offer(ledger, 0.02, budget=5.0))


def test_a_scout_reserves_memory_for_all_that_it_can_make() -> None:
    """And no more: it is cut there."""
    for mode in ("Predictive", "Deadline"):
        ledger = grown(mode=mode, memory={"gate": "Enabled", "reservation": "Learned"})
        ledger.observe_memory("pod-0", 95)
        assert admitted(offer(ledger, 1.0, prompt=1)).reserved == 51


def test_nobody_scouts_where_memory_is_missing() -> None:
    """Half of what is known is short, and only so much is reserved by the policy's quantile."""
    memory = {"gate": "Enabled", "reservation": "Learned", "quantilePercent": 50}
    ledger = grown(memory=memory)
    for number in range(NEIGHBOURS // 2):
        ledger.lengths.observe(ask(number, tokens=100), 10)
    ledger.observe_memory("pod-0", 40)
    assert refused(offer(ledger, 1.0)).reason is Reason.DEADLINE_UNREACHABLE


def test_in_mode_deadline_who_would_be_dropped_scouts() -> None:
    """There nobody is refused by length, and everybody of the kind would be dropped."""
    ledger = grown(mode="Deadline")
    assert admitted(offer(ledger, 1.0)).scouts
    ledger.end(ledger.all_pods[0].residents[1], Outcome.LATE, 1.5)
    assert admitted(offer(ledger, 1.6)).outcome is Outcome.EXPIRED
    assert admitted(offer(ledger, 1.0 + CREDIT_SECONDS)).scouts


class Lines:
    """A sink that wants a checkpoint after every line."""

    checkpoint_due = True

    def __init__(self) -> None:
        self.lines: list[str] = []

    def put(self, line: dict[str, Any]) -> None:
        self.lines.append(json.dumps(line))


def test_a_log_with_scouts_is_lived_again_exactly() -> None:
    """Budgets are a part of every checkpoint, so a reader may begin anywhere."""
    lines = Lines()
    plain = Ledger(learning())
    plain.join_pod("pod-0", MODEL, 0.0)
    ledger = record(teach(plain), lines)
    now, outcomes = 0.0, []
    for number in range(12):
        answer = offer(ledger, now)
        outcomes.append(isinstance(answer, Ticket))
        if isinstance(answer, Ticket) and number % 4 == 3:
            ledger.end(answer, Outcome.LATE, now + BUDGET)
        elif isinstance(answer, Ticket):
            finish(ledger, answer, now + 0.2)
        now += CREDIT_SECONDS / 2 if number % 4 == 3 else 1.0
    ledger.flush()
    assert outcomes == [True] * 4 + [False] * 4 + [True] * 4
    for start in range(len(lines.lines)):
        player = Player()
        for line in lines.lines[start:]:
            player.feed(json.loads(line))
        assert player.differences == []
