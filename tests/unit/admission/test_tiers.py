"""Tiers: deadlines and reserved shares of kinds of callers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from punctual_admission.fields import PolicyError
from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Reason
from punctual_admission.policy import Policy, policy_from_spec
from punctual_admission.service_time import ServiceModel
from punctual_admission.shares import LENT_AFTER
from punctual_admission.ticket import Refusal, Ticket
from support.admission import admitted, ask, exact_ledger, make_policy, refused

MODEL = ServiceModel((0.01,), 0.01)
TIERS = [
    {"name": "interactive", "defaultDeadlineMilliseconds": 1000, "reservedPercent": 25},
    {"name": "batch", "values": ["batch", "nightly"], "budgetMilliseconds": 20_000},
]


def tiered(**spec: object) -> Policy:
    """A deadline of 2 s, and two tiers."""
    return make_policy(
        estimate={"speed": "Fixed"}, deadline={"defaultMilliseconds": 2000}, tiers=TIERS, **spec
    )


def offer(ledger: Ledger, number: int, tier: str, now: float, tokens: int = 10,
          budget: float = 2.0) -> Ticket | Refusal:  # fmt: skip
    """A request of a tier."""
    request = ask(number, tokens=tokens, at=now, budget=budget)
    return ledger.offer(replace(request, tier=tier), now)


def fill(ledger: Ledger, tier: str, now: float) -> Reason:
    """Offer requests of a tier until one is refused; why."""
    for number in range(1000):
        answer = offer(ledger, number, tier, now)
        if isinstance(answer, Refusal):
            return answer.reason
    raise AssertionError("somebody must be refused")


def test_a_header_value_means_the_first_tier_that_has_it() -> None:
    """Its listed values, or its name where it lists none; anything else means no tier."""
    policy = tiered()
    assert policy.tier_of("interactive") == "interactive"
    assert policy.tier_of("nightly") == "batch"
    assert policy.tier_of("gold") == ""
    assert policy.tier("batch") == policy.tiers[1]
    assert policy.tier("gold") is None


def test_of_tier_budget_and_deadline_the_smaller_counts() -> None:
    """A tier's default replaces the policy's; its budget and the maximum bound what is asked."""
    policy = tiered()
    assert policy.budget(None) == 2.0
    assert policy.budget(None, "interactive") == 1.0
    assert policy.budget(5.0, "interactive") == 5.0
    assert policy.budget(None, "batch") == 2.0
    assert policy.budget(60.0, "batch") == 20.0
    assert policy.budget(9999.0, "interactive") == 300.0


def test_other_tiers_leave_a_tier_its_share() -> None:
    """Once it has asked, the others fill the queue up to its credit, and one of its own fits."""
    ledger = exact_ledger(tiered(), MODEL)
    admitted(offer(ledger, 9000, "interactive", 0.0, tokens=1))
    assert fill(ledger, "batch", 3.0) is Reason.TIER_SHARE_EXHAUSTED
    assert refused(offer(ledger, 9001, "", 3.0)).reason is Reason.TIER_SHARE_EXHAUSTED
    assert admitted(offer(ledger, 9002, "interactive", 3.0, tokens=30)).kept


def test_a_share_that_is_not_asked_for_is_lent_out() -> None:
    """Without the tier asking, the others take all there is."""
    ledger = exact_ledger(tiered(), MODEL)
    assert fill(ledger, "batch", 0.0) is Reason.DEADLINE_UNREACHABLE
    later = exact_ledger(tiered(), MODEL)
    admitted(offer(later, 9000, "interactive", 0.0, tokens=1))
    assert fill(later, "batch", LENT_AFTER * 2.0 + 0.1) is Reason.DEADLINE_UNREACHABLE


def test_tiers_and_size_classes_hold_their_shares_together() -> None:
    """Who belongs to neither leaves room for both."""
    sizes = [{"name": "long", "minimumTokens": 40, "reservedPercent": 10}]
    both, one = exact_ledger(tiered(sizeClasses=sizes), MODEL), exact_ledger(tiered(), MODEL)
    for ledger in (both, one):
        admitted(offer(ledger, 9000, "interactive", 0.0, tokens=50))
    request = ask(1, tokens=1, at=3.0, budget=2.0)
    assert both.held(request, 3.0) == pytest.approx(one.held(request, 3.0) + 0.2, abs=0.31)
    assert both.held(request, 3.0) > one.held(request, 3.0)


def test_more_than_all_cannot_be_reserved() -> None:
    """Tiers and size classes are summed."""
    with pytest.raises(PolicyError, match="reserve at most 90 percent together, got 100"):
        policy_from_spec(
            {"model": "m", "tiers": [{"name": "a", "reservedPercent": 75}],
             "sizeClasses": [{"name": "long", "reservedPercent": 25}]}
        )  # fmt: skip
