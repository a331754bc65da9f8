"""The numbers of docs/mathematics.md."""

from __future__ import annotations

import pytest

from punctual_admission.outcomes import Reason
from punctual_admission.ticket import Refusal, Request, Ticket
from punctual_lab.experiments import formulas, reference
from punctual_lab.traces import REFERENCE_MIX
from support.admission import admitted, exact_ledger, make_policy, refused


def test_moments_of_the_reference_mix() -> None:
    """E[S], E[S^2], the squared variation, and the rate of load 1."""
    times = [0.001 + 0.0084 * tokens for tokens in REFERENCE_MIX.tokens]
    pairs = list(zip(REFERENCE_MIX.shares, times, strict=True))
    mean = sum(share * time for share, time in pairs)
    square = sum(share * time**2 for share, time in pairs)
    assert mean == pytest.approx(reference.mean_service_seconds())
    assert mean == pytest.approx(0.1455, abs=5e-5)
    assert square == pytest.approx(0.0505, abs=5e-4)
    assert square / mean**2 - 1 == pytest.approx(1.39, abs=0.01)
    assert 1 / mean == pytest.approx(6.87, abs=0.01)
    wait = formulas.pollaczek_khinchine_wait(0.8 / mean, mean, square)
    assert wait == pytest.approx(0.69, abs=0.01)


def test_a_pool_waits_less_than_its_parts() -> None:
    """At load 0.7: 2.3 services for one, 0.55 for three together."""
    assert formulas.mm1_wait(0.7, 1.0) == pytest.approx(2.33, abs=0.01)
    assert formulas.mmc_wait(2.1, 1.0, 3) == pytest.approx(0.55, abs=0.01)


def test_the_worked_example() -> None:
    """W = 1.0446 s; 64 fits, another 64 misses by 0.1218 s, 16 still fits."""
    policy = make_policy(estimate={"speed": "Fixed"})
    ledger = exact_ledger(policy, reference.reference_model())
    arrival = 24 * 0.0084 + 0.001

    def offer(name: str, tokens: int, at: float, budget: float = 2.0) -> Ticket | Refusal:
        return ledger.offer(Request(name, 0, tokens, at, at + budget), at)

    running = admitted(offer("running", 64, 0.0))
    for name, tokens in (("a", 64), ("b", 16), ("c", 4)):
        admitted(offer(name, tokens, 0.0))
    ledger.progressed(running, 0.0094)
    ledger.progressed(running, arrival, 23)
    first = admitted(offer("first", 64, arrival))
    assert first.prediction.wait == pytest.approx(1.0446)
    assert first.prediction.sojourn == pytest.approx(1.5832)
    second = refused(offer("second", 64, arrival))
    assert second.reason is Reason.DEADLINE_UNREACHABLE
    assert second.prediction.excess == pytest.approx(0.1218)
    assert 0.336 <= second.retry_after <= 1.5 * 0.336
    third = admitted(offer("third", 16, arrival))
    assert third.prediction.sojourn == pytest.approx(1.7186)
