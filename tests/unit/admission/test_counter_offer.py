"""Counter-offers: what is offered is what would be admitted, and no more would be."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual_admission.counter_offer import MOST_QUESTIONS, STEP, largest
from punctual_admission.decision import decide
from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Reason
from punctual_admission.policy import policy_from_spec
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import CounterOffer, Refusal, Request
from support.admission import admitted, ask, exact_ledger, make_policy, refused

ALWAYS = {"counterOffer": "Always"}
MODEL = ServiceModel((0.01,), 0.01)


def crowded_ledger(seed: int, **spec: Any) -> tuple[Ledger, random.Random]:
    """Pods of one to four slots with as much work as they admit of a burst."""
    rng = random.Random(seed)
    models = []
    for _ in range(rng.randint(1, 2)):
        first, growth = rng.uniform(0.005, 0.02), rng.uniform(0, 0.003)
        steps = tuple(first + growth * extra for extra in range(rng.randint(1, 4)))
        models.append(ServiceModel(steps, rng.uniform(0, 0.02), rng.uniform(0, 0.0003)))
    order = rng.choice(["EarliestDeadlineFirst", "FirstInFirstOut"])
    policy = make_policy(refusals=ALWAYS, queue={"order": order}, **spec)
    ledger = exact_ledger(policy, *models, rng=random.Random(1))
    for number in range(rng.randint(1, 30)):
        ledger.offer(some_request(number, rng), 0.0)
    return ledger, rng


def some_request(number: int, rng: random.Random) -> Request:
    """A request of any size and urgency at time 0."""
    tokens, prompt = rng.choice([4, 16, 64]), rng.randint(0, 50)
    return ask(number, tokens=tokens, prompt=prompt, budget=rng.choice([0.3, 1.0, 2.0]))


def fits(ledger: Ledger, request: Request) -> bool:
    """Whether the request would be admitted."""
    return not isinstance(decide(ledger.policy, ledger, request, 0.0), Refusal)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_the_offered_answer_is_admitted_and_one_token_more_is_not(seed: int) -> None:
    """On any pods, in any queue; without an offer not even one token is admitted."""
    ledger, rng = crowded_ledger(seed)
    request = some_request(1000, rng)
    answer = decide(ledger.policy, ledger, request, 0.0)
    if not isinstance(answer, Refusal):
        return
    offered = answer.offer.output_tokens if answer.offer else None
    if offered is None:
        assert not fits(ledger, replace(request, output_tokens=1))
        return
    assert fits(ledger, replace(request, output_tokens=offered))
    assert not fits(ledger, replace(request, output_tokens=offered + 1))
    admitted(ledger.offer(replace(request, output_tokens=offered), 0.0))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_the_offered_deadline_is_admitted_and_a_step_earlier_is_not(seed: int) -> None:
    """A step is two hundredths."""
    ledger, rng = crowded_ledger(seed)
    request = some_request(1000, rng)
    answer = decide(ledger.policy, ledger, request, 0.0)
    if not isinstance(answer, Refusal) or answer.offer is None or answer.offer.budget is None:
        return
    budget = answer.offer.budget
    assert request.budget < budget <= ledger.policy.budget(float("inf"))
    assert fits(ledger, replace(request, deadline=budget))
    earlier = budget / STEP
    assert earlier <= request.budget or not fits(ledger, replace(request, deadline=earlier))


def test_where_the_forecast_is_exact_the_first_guess_is_right() -> None:
    """One slot busy for 0.5 s, 10 ms a token: 50 tokens fit into 1 s, and 100 into 1.5 s."""
    ledger = exact_ledger(make_policy(refusals=ALWAYS, estimate={"speed": "Fixed"}), MODEL)
    admitted(ledger.offer(ask(0, tokens=50), 0.0))
    offer = refused(ledger.offer(ask(1, tokens=100, budget=1.0), 0.0)).offer
    assert offer is not None
    assert offer.output_tokens == 50
    assert offer.budget == pytest.approx(1.5, abs=0.03)


def test_without_the_policy_asking_nothing_is_offered() -> None:
    """The default: a refusal costs no search."""
    ledger = exact_ledger(make_policy(), MODEL)
    assert refused(ledger.offer(ask(0, tokens=100, budget=0.5), 0.0)).offer is None


def test_a_full_queue_is_not_helped_by_less() -> None:
    """A count is one whatever is asked for."""
    spec = {"mode": "Bounded", "queue": {"maximumRequests": 0}, "refusals": ALWAYS}
    ledger = exact_ledger(make_policy(**spec), MODEL)
    admitted(ledger.offer(ask(0, tokens=50), 0.0))
    answer = refused(ledger.offer(ask(1, tokens=50), 0.0))
    assert (answer.reason, answer.offer) == (Reason.QUEUE_FULL, None)


def test_a_limit_on_work_is_met_by_a_shorter_answer_at_any_deadline() -> None:
    """Half a second of work may be in flight, and a later deadline changes nothing of that."""
    pool = {"maximumWorkMilliseconds": 500, "headroomPercent": 0}
    ledger = exact_ledger(make_policy(pool=pool, refusals=ALWAYS), MODEL)
    answer = refused(ledger.offer(ask(0, tokens=100, budget=10.0), 0.0))
    assert answer.offer == CounterOffer(50, None)


def test_an_offered_deadline_is_within_what_the_policy_allows() -> None:
    """No deadline is offered that would be clamped to an earlier one."""
    policy = policy_from_spec(
        {"model": "m", "deadline": {"defaultMilliseconds": 500, "maximumMilliseconds": 900},
         "refusals": ALWAYS}
    )  # fmt: skip
    ledger = exact_ledger(policy, MODEL)
    offer = refused(ledger.offer(ask(0, tokens=100, budget=0.5), 0.0)).offer
    assert offer == CounterOffer(50, None)


@pytest.mark.parametrize("guess", [-3, 0, 17, 40, 99, 200])
@pytest.mark.parametrize("answer", [-1, 0, 16, 17, 18, 98])
def test_the_search_finds_the_last_that_holds(guess: int, answer: int) -> None:
    """From any guess, within the questions allowed."""
    found = largest(lambda number: number <= answer, 99, guess, MOST_QUESTIONS)
    assert found == (None if answer < 0 else answer)


def test_the_search_ends_when_its_questions_are_used_up() -> None:
    """What it then says holds, though more might."""
    asked = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number <= 5000

    assert largest(holds, 100_000, 100, 3) == 103
    assert len(asked) == 3
    assert largest(holds, 0, 0, 3) is None
