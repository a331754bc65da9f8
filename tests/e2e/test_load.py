"""What callers see under load."""

from __future__ import annotations

from e2e.release import Release
from e2e.service import Service


def test_more_load_than_the_pool_can_carry_is_refused_with_advice(service: Service) -> None:
    """At several times the capacity: answers in time, refusals at once, and nothing else."""
    outcomes = service.load(20, 40, "--deadline-ms=2000").wait()
    counts = outcomes.counts
    assert counts["good"] > 0, outcomes.describe()
    assert counts["refused"] > 0, outcomes.describe()
    assert counts["failed"] == counts["cancelled"] == 0, outcomes.describe("failed", "cancelled")
    for row in outcomes.of("refused"):
        assert row["status"] == 503
        assert row["refusal_type"] == "overloaded"
        assert row["refusal_code"] == "deadline_unreachable"
        assert row["retry_after_ms"] > 0


def test_traffic_does_not_need_the_operator(service: Service, release: Release) -> None:
    """With the operator scaled to zero and then a model pod replaced, every promise is kept."""
    release.scale_operator(0)
    try:
        load = service.load(25, 2, "--deadline-ms=10000", "--retry=obey")
        service.scale(2)
        load.wait().assert_promises_kept()
    finally:
        release.scale_operator(1)
