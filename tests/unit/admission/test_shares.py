"""Reserved shares of engine time for size classes."""

from __future__ import annotations

import pytest

from punctual_admission.fields import PolicyError
from punctual_admission.ledger import Ledger
from punctual_admission.limits import SizeClass
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.service_time import ServiceModel
from punctual_admission.shares import LENT_AFTER, Shares, class_of
from support.admission import admitted, ask, exact_ledger, make_policy, refused

LONG = SizeClass("long", 64, 25)
MIDDLE = SizeClass("middle", 16, 10)
WINDOW = 2.0
MODEL = ServiceModel((0.01,), 0.01)


def hold(shares: Shares, tokens: int, now: float) -> float:
    """What a request of so many tokens leaves to the others, one pod."""
    return shares.hold((LONG, MIDDLE), class_of((LONG, MIDDLE), tokens), WINDOW, 1, now)


def asked(shares: Shares, tokens: int, now: float, cost: float = 0.5) -> None:
    """A request of so many tokens came."""
    shares.ask(class_of((LONG, MIDDLE), tokens), cost, WINDOW, now)


def test_a_request_belongs_to_the_largest_class_it_reaches() -> None:
    """Below all minima it belongs to none."""
    classes = (MIDDLE, LONG)
    assert class_of(classes, 64) is LONG
    assert class_of(classes, 63) is MIDDLE
    assert class_of(classes, 15) is None


def test_credit_grows_by_the_share_while_the_class_asks() -> None:
    """A quarter of a GPU-second a second, up to what may be saved, and nothing before it asked."""
    shares = Shares()
    assert hold(shares, 4, 0.0) == 0.0
    asked(shares, 64, 0.0)
    assert hold(shares, 4, 1.0) == pytest.approx(0.25)
    assert hold(shares, 4, 9.0) == pytest.approx(0.5)


def test_a_class_leaves_nothing_to_itself() -> None:
    """Its own credit is no work ahead of it, that of another class is."""
    shares = Shares()
    asked(shares, 64, 0.0)
    asked(shares, 16, 0.0)
    assert hold(shares, 64, 1.0) == pytest.approx(0.1)
    assert hold(shares, 16, 1.0) == pytest.approx(0.25)
    assert hold(shares, 4, 1.0) == pytest.approx(0.35)


def test_an_unused_share_is_lent_out() -> None:
    """Who has not asked for a while is not waited for."""
    shares = Shares()
    asked(shares, 64, 0.0)
    assert hold(shares, 4, LENT_AFTER * WINDOW - 0.1) > 0
    assert hold(shares, 4, LENT_AFTER * WINDOW + 0.1) == 0.0


def test_admitted_work_costs_credit_and_given_back_work_returns_it() -> None:
    """No debt is kept, and no more than the most is saved."""
    shares = Shares()
    asked(shares, 64, 0.0, cost=0.8)
    shares.take(LONG, 0.3, WINDOW, 1, 2.0)
    assert hold(shares, 4, 2.0) == pytest.approx(0.2)
    shares.take(LONG, 5.0, WINDOW, 1, 2.0)
    assert hold(shares, 4, 2.0) == 0.0
    shares.take(LONG, -5.0, WINDOW, 1, 2.0)
    assert hold(shares, 4, 2.0) == pytest.approx(0.8)


def test_who_belongs_to_no_class_has_no_account() -> None:
    """Asking and taking change nothing, and so does taking for a class that never asked."""
    shares = Shares()
    asked(shares, 4, 0.0)
    shares.take(None, 1.0, WINDOW, 1, 0.0)
    shares.take(LONG, -1.0, WINDOW, 1, 0.0)
    assert hold(shares, 16, 1.0) == 0.0


def sharing_ledger(displacement: str = "Never", **spec: object) -> Ledger:
    """One slot, 2 s deadline, a quarter kept for answers of 40 tokens and more."""
    policy = make_policy(
        estimate={"speed": "Fixed"},
        deadline={"defaultMilliseconds": 2000},
        queue={"displacement": displacement},
        sizeClasses=[{"name": "long", "minimumTokens": 40, "reservedPercent": 25}],
        **spec,
    )
    return exact_ledger(policy, MODEL)


def fill(ledger: Ledger, tokens: int, now: float) -> Reason:
    """Offer requests until one is refused; why."""
    for number in range(1000):
        answer = ledger.offer(ask(number, tokens=tokens, at=now, budget=2.0), now)
        if hasattr(answer, "retry_after"):
            return refused(answer).reason
    raise AssertionError("somebody must be refused")


def test_short_requests_leave_room_for_a_long_one() -> None:
    """Once the long have asked, the short fill the queue up to the credit, and a long one fits."""
    ledger = sharing_ledger()
    admitted(ledger.offer(ask(9000, tokens=1), 0.0))
    refused(ledger.offer(ask(9001, tokens=500, budget=2.0), 0.0))
    assert fill(ledger, 4, 3.0) is Reason.TIER_SHARE_EXHAUSTED
    admitted(ledger.offer(ask(9002, tokens=50, at=3.0, budget=2.0), 3.0))


def test_without_the_long_asking_nothing_is_held() -> None:
    """The short take all there is."""
    ledger = sharing_ledger()
    assert fill(ledger, 4, 3.0) is Reason.DEADLINE_UNREACHABLE


def test_other_modes_hold_nothing() -> None:
    """A share is a rule on time; Bounded counts."""
    ledger = sharing_ledger(mode="Bounded")
    refused_long = ledger.offer(ask(9001, tokens=500, budget=2.0), 0.0)
    admitted(refused_long)
    assert fill(ledger, 4, 3.0) is Reason.QUEUE_FULL


def test_a_class_with_a_share_is_not_displaced() -> None:
    """Displacement takes the longest of the others."""
    ledger = sharing_ledger("Longest")
    admitted(ledger.offer(ask(1, tokens=50, budget=2.0), 0.0))
    kept = admitted(ledger.offer(ask(2, tokens=80, budget=2.0), 0.0))
    given_up = admitted(ledger.offer(ask(3, tokens=39, budget=2.0), 0.0))
    for number in range(4, 20):
        ledger.offer(ask(number, tokens=8, budget=2.0), 0.0)
    assert given_up.reason is Reason.DISPLACED
    assert kept.outcome is None


def test_a_request_that_ends_in_the_queue_gives_its_share_back() -> None:
    """A client that leaves before its start has used nothing."""
    ledger = sharing_ledger()
    admitted(ledger.offer(ask(1, tokens=50, budget=9.0), 0.0))
    refused(ledger.offer(ask(2, tokens=500, budget=1.0), 0.0))
    waiting = admitted(ledger.offer(ask(3, tokens=50, at=2.0, budget=9.0), 2.0))
    before = ledger.held(ask(4, tokens=4), 2.0)
    ledger.end(waiting, Outcome.CANCELLED, 2.0)
    assert ledger.held(ask(4, tokens=4), 2.0) > before


def test_without_pods_asking_costs_nothing() -> None:
    """A pool without pods refuses, and the class has asked all the same."""
    ledger = Ledger(sharing_ledger().policy)
    answer = refused(ledger.offer(ask(1, tokens=50), 0.0))
    assert answer.reason is Reason.POOL_EXHAUSTED


def test_shares_are_bounded() -> None:
    """Three classes of 30 % leave a tenth to everybody else."""
    with pytest.raises(PolicyError, match="reservedPercent must be an integer from 0 to 30"):
        make_policy(sizeClasses=[{"name": "long", "reservedPercent": 31}])
