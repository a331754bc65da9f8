"""What a client does after a refusal: how long it waits before the next try, if any."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a client sees of a refusal: the answer's advice, `None` where it gives none."""

    attempt: int
    retry_after_seconds: float | None
    should_retry: bool | None


class RetryBehaviour(Protocol):
    """Decides after each refusal; one object serves all requests of a run."""

    def first_attempt(self) -> None:
        """Take note of a request's first attempt."""

    def delay_seconds(self, refusal: Refusal) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up."""


@dataclass(slots=True)
class NoRetry:
    """Gives up at the first refusal."""

    def first_attempt(self) -> None:
        """Nothing to note."""

    def delay_seconds(self, refusal: Refusal) -> float | None:  # noqa: ARG002 - the protocol's argument
        """Return None always."""
        return None


@dataclass(slots=True)
class ObeyRetryAfter:
    """Waits as long as the answer says; gives up when it says that no retry helps."""

    maximum_attempts: int = 5
    default_seconds: float = 1.0

    def first_attempt(self) -> None:
        """Nothing to note."""

    def delay_seconds(self, refusal: Refusal) -> float | None:
        """Return the answer's advice, or the default where it gives none."""
        if refusal.attempt >= self.maximum_attempts or refusal.should_retry is False:
            return None
        if refusal.retry_after_seconds is None:
            return self.default_seconds
        return refusal.retry_after_seconds


@dataclass(slots=True)
class IgnoreRetryAfter:
    """Tries again at once with a short exponential back-off, whatever the answer says."""

    maximum_attempts: int = 5
    base_seconds: float = 0.05
    maximum_seconds: float = 1.0
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def first_attempt(self) -> None:
        """Nothing to note."""

    def delay_seconds(self, refusal: Refusal) -> float | None:
        """Return base * 2^(attempt - 1) up to the maximum, times a uniform 0.5 to 1."""
        if refusal.attempt >= self.maximum_attempts:
            return None
        step: float = min(self.base_seconds * 2 ** (refusal.attempt - 1), self.maximum_seconds)
        return step * self.rng.uniform(0.5, 1.0)


@dataclass(slots=True)
class RetryBudget:
    """Obeys another behaviour as long as retries stay under a share of first attempts.

    A token bucket: a first attempt puts `ratio` in, a retry takes 1 out; `reserve` is the
    bucket's start and lets a quiet client retry at all, `capacity` its most (the client throttle
    of gRPC A6 and of Envoy's retry budget).
    """

    inner: RetryBehaviour = field(default_factory=ObeyRetryAfter)
    ratio: float = 0.1
    reserve: float = 3.0
    capacity: float = 10.0
    balance: float = field(init=False)

    def __post_init__(self) -> None:
        """Fill the bucket."""
        self.balance = self.reserve

    def first_attempt(self) -> None:
        """Earn `ratio` of a retry."""
        self.balance = min(self.balance + self.ratio, self.capacity)
        self.inner.first_attempt()

    def delay_seconds(self, refusal: Refusal) -> float | None:
        """Return the inner behaviour's delay if the budget holds one more retry."""
        delay = self.inner.delay_seconds(refusal) if self.balance >= 1.0 else None
        if delay is not None:
            self.balance -= 1.0
        return delay


RETRY_BEHAVIOURS: dict[str, Callable[[], RetryBehaviour]] = {
    "none": NoRetry,
    "obey": ObeyRetryAfter,
    "ignore": IgnoreRetryAfter,
    "budget": RetryBudget,
}
