"""Lengths of answers, learned from those that ended."""

from __future__ import annotations

import pytest

from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.output_length import (
    ENOUGH,
    MOST_GROUPS,
    NEIGHBOURS,
    WINDOW,
    OutputLength,
    OutputLengths,
)
from punctual_admission.policy import Policy
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Request, State
from support.admission import Certain, admitted, ask, exact_ledger, make_policy, refused

MODEL = ServiceModel((0.01,), 0.01)
WIDE = ServiceModel((0.01, 0.012), 0.01)


def request(prompt: int = 10, maximum: int = 100, group: str = "") -> Request:
    """A request that only asks for an estimate."""
    return Request("r", prompt, maximum, 0.0, 1.0, group)


def taught(
    tokens: list[int], prompt: int = 10, group: str = "", lengths: OutputLengths | None = None
) -> OutputLengths:
    """Lengths that have seen these answers of at most 100 tokens."""
    lengths = lengths or OutputLengths()
    for made in tokens:
        lengths.observe(request(prompt, group=group), made)
    return lengths


def test_a_cold_start_is_the_maximum() -> None:
    """Nothing known: the whole maximum, for certain."""
    length = OutputLengths().estimate(request())
    assert (length.mean, length.variance) == (100.0, 0.0)
    assert length.chance(99, 0.0) == 0.0
    assert length.chance(100, 0.0) == 1.0


def test_what_is_missing_counts_as_the_maximum() -> None:
    """Half of what is known counts as similar: half the evidence is half the way."""
    length = taught([50] * NEIGHBOURS).estimate(request())
    assert length.mean == pytest.approx(75.0)
    assert length.chance(50, 0.0) == pytest.approx(0.5)
    assert length.cold
    assert not taught([50] * ENOUGH).estimate(request()).cold


def test_shares_of_the_maximum_are_learned() -> None:
    """Who asks for more is expected to make more; nobody makes less than 1."""
    lengths = taught([25] * ENOUGH)
    assert lengths.estimate(request(maximum=120)).mean == pytest.approx(30.0)
    assert taught([0] * ENOUGH).estimate(request()).mean == 1.0


def test_maxima_far_apart_learn_apart() -> None:
    """What those make who ask for at most 127 tokens says nothing of those who ask for 128."""
    lengths = taught([25] * ENOUGH)
    assert lengths.estimate(request(maximum=64)).mean == pytest.approx(16.0)
    assert lengths.estimate(request(maximum=63)).mean == 63.0
    assert lengths.estimate(request(maximum=128)).mean == 128.0


def test_similar_prompts_tell_more_than_others() -> None:
    """Short prompts got short answers, long ones long answers, and in between is the nearer."""
    lengths = taught([10] * ENOUGH, prompt=100)
    taught([90] * ENOUGH, prompt=1000, lengths=lengths)
    for prompt, tokens in ((1, 10), (120, 10), (540, 10), (560, 90), (5000, 90)):
        assert lengths.estimate(request(prompt)).mean == pytest.approx(tokens)


def test_the_newest_of_equal_prompts_count() -> None:
    """A change of habit is followed within one neighbourhood."""
    lengths = taught([80] * ENOUGH + [20] * ENOUGH)
    assert lengths.estimate(request()).mean == pytest.approx(20.0)


def test_old_answers_are_forgotten() -> None:
    """Only the window is kept."""
    lengths = taught([80] * WINDOW + [20] * WINDOW, prompt=10)
    assert lengths.estimate(request(1)).mean == pytest.approx(20.0)


def test_groups_learn_apart() -> None:
    """A route says nothing of another; an unknown one starts at the maximum."""
    lengths = taught([10] * ENOUGH, group="chat")
    taught([90] * ENOUGH, group="code", lengths=lengths)
    assert lengths.estimate(request(group="chat")).mean == pytest.approx(10.0)
    assert lengths.estimate(request(group="code")).mean == pytest.approx(90.0)
    assert lengths.estimate(request(group="new")).mean == 100.0


def test_names_from_callers_cannot_fill_the_memory() -> None:
    """Groups beyond the limit share one."""
    lengths = OutputLengths()
    for number in range(MOST_GROUPS):
        taught([50], group=str(number), lengths=lengths)
    taught([20] * ENOUGH, group="one more", lengths=lengths)
    assert lengths.estimate(request(group="and another")).mean == pytest.approx(20.0)


def test_what_is_left_is_what_longer_ones_made() -> None:
    """Mean residual: who has made 50 tokens is one of those that make 60 or 80."""
    length = OutputLength.of([10.0, 20.0, 60.0, 80.0])
    assert length.left(0) == (42.5, 818.75)
    assert length.left(50) == (20.0, 100.0)
    assert length.left(79) == (1.0, 0.0)
    assert length.left(200) == (1.0, 0.0)


def test_an_uncertain_limit_softens_the_chance() -> None:
    """At a limit that is the length itself, half of all cases fit."""
    length = OutputLength.of([50.0])
    assert length.chance(50, 5.0) == pytest.approx(0.5)
    assert length.chance(60, 5.0) == pytest.approx(0.977, abs=1e-3)


def learning_policy(**spec: object) -> Policy:
    """Lengths are learned."""
    estimate = {"outputLength": "Learned", "speed": "Fixed", "lengthCertaintyPercent": 90}
    return make_policy(**{"estimate": estimate, **spec})


def ledger_that_knows(share: float, model: ServiceModel = MODEL, **spec: object) -> Ledger:
    """A ledger whose past answers all used this share of their maximum."""
    ledger = exact_ledger(learning_policy(**spec), model)
    for _ in range(ENOUGH):
        ledger.lengths.observe(request(0), round(100 * share))
    return ledger


def test_learned_lengths_let_in_what_the_maximum_would_refuse() -> None:
    """100 tokens of which 20 are made fit into half a second."""
    known, unknown = ledger_that_knows(0.2), exact_ledger(make_policy(), MODEL)
    refused(unknown.offer(ask(1, tokens=100, budget=0.5), 0.0))
    ticket = admitted(known.offer(ask(1, tokens=100, budget=0.5), 0.0))
    assert ticket.expected_tokens == pytest.approx(20.0)
    assert ticket.prediction.service == pytest.approx(0.2)


def test_completed_answers_teach() -> None:
    """Only what has been completed, and only where lengths are learned."""
    for policy, mean in ((learning_policy(), 99.0), (make_policy(), 100.0)):
        ledger = exact_ledger(policy, MODEL)
        for start in (0.0, 1.0):
            ticket = admitted(ledger.offer(ask(1, tokens=100, at=start), start))
            ledger.progressed(ticket, start + 0.01)
            ledger.progressed(ticket, start + 0.36, 35)
            ledger.complete(ticket, start + 0.36)
        assert ledger.lengths.estimate(ask(2, tokens=100)).mean == pytest.approx(mean)


def test_a_running_request_is_expected_to_make_what_longer_ones_made() -> None:
    """Its remaining tokens and their variance follow what it has made."""
    ledger = exact_ledger(learning_policy(), MODEL)
    for tokens in [10, 50] * NEIGHBOURS:
        ledger.lengths.observe(request(0), tokens)
    ticket = admitted(ledger.offer(ask(1, tokens=100), 0.0))
    assert (ticket.remaining, ticket.uncertainty) == (30.0, 400.0)
    ledger.progressed(ticket, 0.01)
    ledger.progressed(ticket, 0.2, 19)
    assert (ticket.remaining, ticket.uncertainty) == (30.0, 0.0)


@pytest.mark.parametrize("model", [MODEL, WIDE])
def test_an_uncertain_queue_needs_more_room(model: ServiceModel) -> None:
    """Same mean ahead: what varies is refused where what is certain fits."""
    answers = []
    for tokens in ([40] * ENOUGH, [1, 79] * NEIGHBOURS):
        ledger = exact_ledger(learning_policy(queue={"order": "FirstInFirstOut"}), model)
        for made in tokens:
            ledger.lengths.observe(request(0), made)
        for number in range(6 * model.slots):
            admitted(ledger.offer(ask(number, tokens=100, budget=30.0), 0.0))
        for made in [2] * ENOUGH:
            ledger.lengths.observe(request(0), made)
        answers.append(ledger.offer(ask(99, tokens=100, budget=3.4), 0.0))
    admitted(answers[0])
    assert refused(answers[1]).reason is Reason.DEADLINE_UNREACHABLE


def test_an_uncertain_newcomer_does_not_endanger_those_it_overtakes() -> None:
    """Ahead of a promise that has room for its mean, and not for its deviation."""
    for tokens, fits in (
        ([30] * ENOUGH, True),
        ([1, 59] * NEIGHBOURS, False),
    ):
        ledger = ledger_that_knows(0.02)
        admitted(ledger.offer(ask(1, tokens=100, budget=20.0), 0.0))
        admitted(ledger.offer(ask(2, tokens=100, budget=0.70), 0.0))
        for made in tokens:
            ledger.lengths.observe(request(0), made)
        answer = ledger.offer(ask(3, tokens=100, budget=0.65), 0.0)
        if fits:
            admitted(answer)
        else:
            refused(answer)


def test_a_first_token_counts_the_wait_alone() -> None:
    """With the objective FirstToken the own length does not matter, that of others does."""
    ledger = ledger_that_knows(0.5, objective="FirstToken")
    admitted(ledger.offer(ask(1, tokens=100, budget=9.0), 0.0))
    refused(ledger.offer(ask(2, tokens=100, budget=0.4), 0.0))
    admitted(ledger.offer(ask(3, tokens=100, budget=0.6), 0.0))


def test_who_is_more_likely_late_than_not_is_dropped_at_the_front() -> None:
    """After a wait that took all the room."""
    ledger = ledger_that_knows(0.5)
    running = admitted(ledger.offer(ask(1, tokens=100, budget=9.0), 0.0))
    waiting = admitted(ledger.offer(ask(2, tokens=100, budget=1.2), 0.0))
    ledger.progressed(running, 0.01)
    ledger.progressed(running, 0.8, 70)
    ledger.complete(running, 0.8)
    assert ledger.next_start(0.8) is None
    assert waiting.state is State.ENDED
    assert waiting.outcome is Outcome.EXPIRED


def test_the_margin_is_that_of_services_where_lengths_are_learned() -> None:
    """What lengths do to the wait is not counted twice."""
    services, sojourns = Certain(), Ledger(make_policy()).sojourns
    for policy, factor in ((learning_policy(), 1.0), (make_policy(), sojourns.factor)):
        ledger = Ledger(policy, services=services, sojourns=sojourns)
        assert ledger.margin == factor


def test_whether_a_retry_helps_depends_on_the_shortest_answer_seen() -> None:
    """A deadline that only a short answer meets may be met next time."""
    ledger = ledger_that_knows(0.9)
    admitted(ledger.offer(ask(0, tokens=100, budget=0.95), 0.0))
    assert not refused(ledger.offer(ask(1, tokens=100, budget=0.5), 0.0)).retry_may_help
    for _ in range(4):
        ledger.lengths.observe(request(0), 10)
    assert refused(ledger.offer(ask(2, tokens=100, budget=0.5), 0.0)).retry_may_help


def test_a_retry_may_help_who_is_not_known() -> None:
    """It may be let through as a scout when a slot is free."""
    ledger = exact_ledger(learning_policy(), MODEL)
    admitted(ledger.offer(ask(1, tokens=40), 0.0))
    assert refused(ledger.offer(ask(2, tokens=100, budget=0.5), 0.0)).retry_may_help


def test_what_is_cut_off_counts_as_the_maximum() -> None:
    """To leave it out would make long answers look rare."""
    ledger = ledger_that_knows(0.2)
    for number in range(NEIGHBOURS):
        ticket = admitted(ledger.offer(ask(number, tokens=100), 0.0))
        ledger.progressed(ticket, 0.01)
        ledger.end(ticket, Outcome.LATE, 0.02)
    assert ledger.lengths.estimate(request(0)).mean == pytest.approx(100.0)


def test_a_late_answer_that_is_whole_teaches_its_length() -> None:
    """Once."""
    ledger = exact_ledger(learning_policy(), MODEL)
    ticket = admitted(ledger.offer(ask(1, tokens=10, budget=0.1), 0.0))
    ledger.progressed(ticket, 0.01)
    assert ledger.complete(ticket, 0.2) is Outcome.LATE
    assert [(known.records, known.mean) for known in ledger.lengths.describe()] == [(1, 0.1)]


def test_what_was_learned_can_be_shown() -> None:
    """By group and size: how many answers, the mean share of the maximum, and quantiles."""
    lengths = taught([10] * 90 + [50] * 9 + [100], group="/v1/completions chat")
    (known,) = lengths.describe()
    assert (known.group, known.maximum, known.records) == ("/v1/completions chat", 127, 100)
    assert known.mean == pytest.approx(0.145)
    assert known.quantiles == (0.1, 0.1, 0.5)
    assert OutputLength.of([1.0, 2.0, 3.0, 4.0]).median == 2.0
