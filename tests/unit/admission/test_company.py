"""Who has to wait is promised its end in a full pod."""

from __future__ import annotations

import pytest

from punctual_admission.company import DEVIATIONS, Company
from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Reason
from punctual_admission.pool import Pod
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Refusal, Request, State, Ticket
from punctual_admission.track import Item, Track
from support.admission import Certain, admitted, make_policy

MODEL = ServiceModel((0.01, 0.014), 0.02, 0.001)


def track_of(model: ServiceModel) -> Track:
    """An idle pod on its way through a forecast."""
    return Track(0, Pod("p", model), 0.0)


def test_a_full_pod_and_the_prefills_of_joiners_are_counted() -> None:
    """first token + steps * T(S) + prefill * (K + Z * sqrt(K))."""
    company = Company(output_tokens=20.0, prompt_tokens=10.0)
    item = Item(0, 101, 9.0, first_token=1.0)
    allowance = 0.03 * (5 + DEVIATIONS * 5**0.5)
    expected = 1.0 + 100 * 0.014 + allowance
    assert company.crowded_end(item, track_of(MODEL)) == pytest.approx(expected)


def test_one_slot_has_no_company() -> None:
    """The end of a request alone is exact."""
    item = Item(0, 11, 9.0, first_token=1.0)
    assert Company().crowded_end(item, track_of(ServiceModel((0.01,), 0.5))) == 1.1


def test_means_are_those_of_the_requests() -> None:
    """Output and prompt tokens, and the least there can be of nobody."""
    ledger = busy_ledger()
    admitted(ledger.offer(Request("c", 10, 4, 0.0, 9.0), 0.0))
    admitted(ledger.offer(Request("d", 30, 8, 0.0, 9.0), 0.0))
    assert Company.of(ledger.queue) == Company(6.0, 20.0)
    assert Company.of([]) == Company(1.0, 0.0)


def busy_ledger(objective: str = "Completion") -> Ledger:
    """Two slots that run until 0.02 + 0.02 + 49 * 0.014 s."""
    policy = make_policy(objective=objective, estimate={"speed": "Fixed"})
    ledger = Ledger(policy, sojourns=Certain(), services=Certain())
    ledger.join_pod("p", ServiceModel((0.01, 0.014), 0.02), 0.0)
    for name in "ab":
        ticket = ledger.offer(Request(name, 0, 50, 0.0, 9.0), 0.0)
        assert isinstance(ticket, Ticket)
        assert ticket.state is State.RUNNING
    return ledger


def test_a_promise_that_only_an_emptying_pod_would_keep_is_not_made() -> None:
    """50 tokens after a wait end by 1.3 s if nobody joins, and later if the pod stays full."""
    ledger = busy_ledger()
    refusal = ledger.offer(Request("tight", 0, 50, 0.0, 1.3), 0.0)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.DEADLINE_UNREACHABLE
    assert refusal.prediction.sojourn < 1.3
    assert isinstance(ledger.offer(Request("relaxed", 0, 50, 0.0, 1.7), 0.0), Ticket)


def test_ahead_of_others_counts_a_full_pod_too() -> None:
    """A newcomer with an earlier deadline is tested in a full pod as well."""
    ledger = busy_ledger()
    assert isinstance(ledger.offer(Request("later", 0, 50, 0.0, 5.0), 0.0), Ticket)
    assert isinstance(ledger.offer(Request("tight", 0, 50, 0.0, 1.48), 0.0), Refusal)
    assert isinstance(ledger.offer(Request("relaxed", 0, 50, 0.0, 1.8), 0.0), Ticket)


def test_a_first_token_needs_no_company() -> None:
    """With the objective FirstToken what comes behind does not matter."""
    ledger = busy_ledger("FirstToken")
    assert isinstance(ledger.offer(Request("first", 0, 50, 0.0, 0.75), 0.0), Ticket)
