"""Quotas: what each client may ask for, whatever the load."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual_admission.ledger import Ledger
from punctual_admission.limits import Quota
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.quota import Quotas
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Refusal, Request, Ticket
from support.admission import admitted, ask, exact_ledger, make_policy, refused

MODEL = ServiceModel((0.01,), 0.01)
PER_SECOND = {"requestsPerMinute": 60, "burstSeconds": 2}


def ledger_with(quota: dict[str, int], **spec: object) -> Ledger:
    """One slot, and the quota."""
    return exact_ledger(make_policy(quota=quota, estimate={"speed": "Fixed"}, **spec), MODEL)


def offer(ledger: Ledger, number: int, client: str, now: float = 0.0, tokens: int = 1,
          budget: float = 10.0) -> Ticket | Refusal:  # fmt: skip
    """A client's request."""
    request = ask(number, tokens=tokens, at=now, budget=budget)
    return ledger.offer(replace(request, client=client), now)


def test_a_client_may_use_its_burst_and_then_its_rate() -> None:
    """Two at once, then one a second; who comes too early is told when."""
    ledger = ledger_with(PER_SECOND)
    admitted(offer(ledger, 0, "a"))
    admitted(offer(ledger, 1, "a"))
    answer = refused(offer(ledger, 2, "a"))
    assert answer.reason is Reason.CLIENT_QUOTA_EXCEEDED
    assert 1.0 <= answer.retry_after <= 1.5
    assert answer.retry_may_help
    admitted(offer(ledger, 3, "a", now=1.0))
    assert refused(offer(ledger, 4, "a", now=1.0)).reason is Reason.CLIENT_QUOTA_EXCEEDED


def test_clients_have_buckets_of_their_own() -> None:
    """One that has used up its quota does not cost another one its own."""
    ledger = ledger_with(PER_SECOND)
    for number in range(3):
        offer(ledger, number, "a")
    admitted(offer(ledger, 3, "b"))


def test_without_a_client_or_a_limit_nothing_is_counted() -> None:
    """Requests that name nobody, and policies without a quota, have no buckets."""
    ledger = ledger_with(PER_SECOND)
    for number in range(5):
        admitted(ledger.offer(ask(number), 0.0))
    assert len(ledger.accounts.quotas) == 0
    free = ledger_with({})
    admitted(offer(free, 0, "a"))
    assert len(free.accounts.quotas) == 0


def test_a_refusal_by_overload_uses_nothing_of_the_quota() -> None:
    """Told apart: the client is refused for the load, and still has its whole bucket."""
    ledger = ledger_with(PER_SECOND)
    for number in range(5):
        answer = refused(offer(ledger, number, "a", tokens=500, budget=1.0))
        assert answer.reason is Reason.DEADLINE_UNREACHABLE
    admitted(offer(ledger, 5, "a"))
    admitted(offer(ledger, 6, "a"))


def test_a_quota_is_named_before_the_load() -> None:
    """Where both would refuse, the client is told of what it can change."""
    ledger = ledger_with({"requestsPerMinute": 60, "burstSeconds": 1})
    admitted(offer(ledger, 0, "a", tokens=500))
    answer = refused(offer(ledger, 1, "a", tokens=500, budget=0.1))
    assert answer.reason is Reason.CLIENT_QUOTA_EXCEEDED


def test_who_is_dropped_unstarted_gets_its_quota_back() -> None:
    """A promise that was not kept is not paid for."""
    ledger = ledger_with(PER_SECOND)
    admitted(offer(ledger, 0, "b", tokens=100))
    first, _ = admitted(offer(ledger, 1, "a")), admitted(offer(ledger, 2, "a"))
    refused(offer(ledger, 3, "a"))
    ledger.end(first, Outcome.EXPIRED, 0.0, Reason.DISPLACED)
    admitted(offer(ledger, 4, "a"))


def test_tokens_and_engine_time_are_limits_too() -> None:
    """600 tokens a minute are 10 a second; 600 ms of engine a minute are 10 ms a second."""
    by_tokens = ledger_with({"tokensPerMinute": 600, "burstSeconds": 4})
    admitted(offer(by_tokens, 0, "a", tokens=30))
    assert refused(offer(by_tokens, 1, "a", tokens=20)).retry_after >= 1.0
    admitted(offer(by_tokens, 2, "a", tokens=10))
    by_work = ledger_with({"gpuMillisecondsPerMinute": 600, "burstSeconds": 20})
    admitted(offer(by_work, 0, "a", tokens=15))
    assert refused(offer(by_work, 1, "a", tokens=10)).reason is Reason.CLIENT_QUOTA_EXCEEDED
    admitted(offer(by_work, 2, "a", tokens=5))


def test_a_request_larger_than_the_bucket_waits_for_a_full_one() -> None:
    """It is let through, and the rest is a debt."""
    quota = Quota(tokens_per_minute=600, burst_seconds=1)
    quotas = Quotas()
    assert quotas.wait(quota, "a", (1, 50, 0), 0.0) == 0.0
    quotas.take(quota, "a", (1, 50, 0), 0.0)
    assert quotas.wait(quota, "a", (1, 50, 0), 0.0) == pytest.approx(5.0)
    assert quotas.wait(quota, "a", (1, 50, 0), 5.0) == 0.0


def test_a_limit_below_one_request_in_a_burst_lets_one_through() -> None:
    """One request a minute is one request a minute, however short the burst."""
    quota = Quota(requests_per_minute=1, burst_seconds=1)
    quotas = Quotas()
    quotas.take(quota, "a", (1, 1, 0), 0.0)
    assert quotas.wait(quota, "a", (1, 1, 0), 0.0) == pytest.approx(60.0)
    assert quotas.wait(quota, "a", (1, 1, 0), 60.0) == 0.0


def test_who_was_not_seen_for_longest_is_forgotten() -> None:
    """The table has a bound, whatever names clients invent."""
    quota = Quota(requests_per_minute=1, burst_seconds=1, maximum_clients=3)
    quotas = Quotas()
    for name in ("a", "b", "a", "c", "d"):
        quotas.take(quota, name, (1, 1, 0), 0.0)
    assert len(quotas) == 3
    assert quotas.wait(quota, "b", (1, 1, 0), 0.0) == 0.0
    assert quotas.wait(quota, "a", (1, 1, 0), 0.0) > 0.0


def test_under_observe_a_client_over_its_quota_is_admitted_and_counted() -> None:
    """What would be refused is said, nothing is refused."""
    ledger = ledger_with({"requestsPerMinute": 1, "burstSeconds": 1}, enforcement="Observe")
    admitted(offer(ledger, 0, "a"))
    assert admitted(offer(ledger, 1, "a")).would_refuse is Reason.CLIENT_QUOTA_EXCEEDED


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(1, 30)), max_size=60))
def test_no_client_gets_more_than_burst_and_rate(calls: list[tuple[float, int]]) -> None:
    """In any sequence, tokens admitted within t seconds are at most rate * t + burst + one."""
    quota = Quota(tokens_per_minute=600, burst_seconds=5)
    quotas, now, total = Quotas(), 0.0, 0.0
    for pause, tokens in calls:
        now += pause
        if quotas.wait(quota, "a", (1, tokens, 0), now) == 0.0:
            quotas.take(quota, "a", (1, tokens, 0), now)
            total += tokens
            assert total <= 10 * now + 50 + 1e-6


def test_a_request_carries_who_asks() -> None:
    """By default nobody, and no tier."""
    assert (Request("r", 1, 1, 0.0, 1.0).client, Request("r", 1, 1, 0.0, 1.0).tier) == ("", "")
