"""Each retry behaviour waits as its name says."""

from __future__ import annotations

import pytest

from punctual_lab.load.retry import (
    RETRY_BEHAVIOURS,
    IgnoreRetryAfter,
    NoRetry,
    ObeyRetryAfter,
    Refusal,
    RetryBudget,
)


def refusal(attempt: int = 1, seconds: float | None = 2.0, should: bool | None = None) -> Refusal:
    """Build a refusal."""
    return Refusal(attempt=attempt, retry_after_seconds=seconds, should_retry=should)


def test_no_retry_gives_up() -> None:
    """Without retries a refusal is the end."""
    assert NoRetry().delay_seconds(refusal()) is None


def test_obedient_client_waits_as_told() -> None:
    """The answer's advice is the delay, the default stands in where there is none."""
    behaviour = ObeyRetryAfter(maximum_attempts=3, default_seconds=0.7)
    assert behaviour.delay_seconds(refusal(seconds=2.0)) == 2.0
    assert behaviour.delay_seconds(refusal(seconds=None)) == 0.7
    assert behaviour.delay_seconds(refusal(attempt=3)) is None


def test_obedient_client_stops_when_no_retry_helps() -> None:
    """`x-should-retry: false` ends the request."""
    assert ObeyRetryAfter().delay_seconds(refusal(should=False)) is None
    assert ObeyRetryAfter().delay_seconds(refusal(should=True)) == 2.0


def test_ignoring_client_backs_off_on_its_own() -> None:
    """The delay doubles from its base, jittered down to half, whatever the answer says."""
    behaviour = IgnoreRetryAfter(maximum_attempts=4, base_seconds=0.1, maximum_seconds=0.2)
    for attempt, step in ((1, 0.1), (2, 0.2), (3, 0.2)):
        delay = behaviour.delay_seconds(refusal(attempt=attempt, seconds=60, should=False))
        assert delay is not None
        assert step / 2 <= delay <= step
    assert behaviour.delay_seconds(refusal(attempt=4)) is None


def test_budget_bounds_retries_to_a_share_of_first_attempts() -> None:
    """After the reserve, one retry needs ten first attempts at a ratio of 0.1."""
    budget = RetryBudget(ratio=0.1, reserve=1.0)
    assert budget.delay_seconds(refusal()) == 2.0
    assert budget.delay_seconds(refusal()) is None
    for _ in range(10):
        budget.first_attempt()
    budget.first_attempt()
    assert budget.delay_seconds(refusal()) == 2.0
    assert budget.delay_seconds(refusal()) is None


def test_budget_does_not_grow_past_its_capacity() -> None:
    """A long quiet time does not save up for a storm."""
    budget = RetryBudget(ratio=1.0, capacity=2.0)
    for _ in range(100):
        budget.first_attempt()
    assert budget.balance == 2.0


def test_a_retry_that_the_inner_behaviour_forbids_costs_nothing() -> None:
    """Giving up leaves the budget as it was."""
    budget = RetryBudget(reserve=3.0)
    assert budget.delay_seconds(refusal(should=False)) is None
    assert budget.balance == 3.0


@pytest.mark.parametrize("name", sorted(RETRY_BEHAVIOURS))
def test_each_named_behaviour_can_be_made(name: str) -> None:
    """The command line's names give fresh behaviours."""
    make = RETRY_BEHAVIOURS[name]
    assert make() is not make()
