"""The worked examples of the theory, with their numbers."""

from __future__ import annotations

import pytest

from punctual_admission.outcomes import Reason
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Request, State
from support.admission import admitted, ask, exact_ledger, make_policy, refused

PREFILL_ONLY = ServiceModel((0.01,), prefill_base=0.0, prefill_per_token=1 / 1200)
"""1,200 prompt tokens a second, and answers of one token."""


def test_a_short_prompt_queue_leaves_time_for_the_first_token() -> None:
    """1,100 prompt tokens ahead of 800: the first token comes after 1.58 s, within 2 s."""
    policy = make_policy(objective="FirstToken", estimate={"speed": "Fixed"})
    ledger = exact_ledger(policy, PREFILL_ONLY)
    admitted(ledger.offer(Request("ahead", 1100, 1, 0.0, 2.0), 0.0))
    ticket = admitted(ledger.offer(Request("newcomer", 800, 1, 0.0, 2.0), 0.0))
    assert ticket.prediction.wait == pytest.approx(1100 / 1200)
    assert ticket.prediction.sojourn == pytest.approx(1900 / 1200)


def test_a_long_prompt_queue_makes_the_first_token_late() -> None:
    """2,400 prompt tokens ahead of 800 would take 2.67 s: refused, with the excess in numbers."""
    policy = make_policy(objective="FirstToken", estimate={"speed": "Fixed"})
    ledger = exact_ledger(policy, PREFILL_ONLY)
    admitted(ledger.offer(Request("ahead", 2400, 1, 0.0, 2.0), 0.0))
    refusal = refused(ledger.offer(Request("newcomer", 800, 1, 0.0, 2.0), 0.0))
    assert refusal.reason is Reason.DEADLINE_UNREACHABLE
    assert refusal.prediction.sojourn == pytest.approx(3200 / 1200)
    assert refusal.prediction.excess == pytest.approx(3200 / 1200 - 2)


def test_a_burst_of_ten_on_two_slots_and_four_places_admits_six() -> None:
    """Two run from that instant, four wait, four are refused as `queue_full`."""
    policy = make_policy(mode="Bounded", queue={"maximumRequests": 4})
    ledger = exact_ledger(policy, ServiceModel((0.01, 0.012)))
    answers = [ledger.offer(ask(number, tokens=4), 0.0) for number in range(10)]
    tickets = [admitted(answer) for answer in answers[:6]]
    assert [ticket.state for ticket in tickets] == [State.RUNNING] * 2 + [State.QUEUED] * 4
    assert {refused(answer).reason for answer in answers[6:]} == {Reason.QUEUE_FULL}
