"""Reserved shares of engine time for tiers and size classes, so that none of them is starved.

Whoever fits is admitted, and short requests fit more often: under overload they take nearly all.
A class (of sizes, or a tier of callers) with a reserved share of r % earns credit, r / 100
GPU-seconds a second for each pod, up to what it may save: r / 100 of the default deadline, or one
request of its own if that is more. What it is admitted for costs it credit; a debt is not kept. For
everybody else the credit counts as work that is ahead of them already, so they leave that much of
the queue free:

    A + m * (W + S + C / pods) <= D        with C the credit of the other classes.

The queue of the others becomes shorter by C, the engine no less busy. A share is lent out while
its class does not ask: credit counts for nothing when the class has not asked for `LENT_AFTER`
default deadlines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from punctual_admission.limits import SizeClass, Tier

    Share = SizeClass | Tier

LENT_AFTER = 5.0
"""Default deadlines without a request of the class after which its share is lent out."""


@dataclass(slots=True)
class _Account:
    credit: float
    most: float
    updated: float
    asked: float


class Shares:
    """The accounts of all classes. Times are monotonic seconds, credits GPU-seconds."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def hold(
        self,
        classes: Sequence[Share],
        own: Share | None,
        window: float,
        pods: int,
        now: float,
    ) -> float:
        """GPU-seconds that a request of the class `own` has to leave to the other ones.

        `window` is the default deadline in seconds.
        """
        held = 0.0
        for one in classes:
            account = self._accounts.get(one.name)
            if one is own or account is None or now - account.asked > LENT_AFTER * window:
                continue
            self._earn(one, account, window, pods, now)
            held += account.credit
        return held

    def ask(self, own: Share | None, cost: float, window: float, now: float) -> None:
        """A request of the class came, whatever becomes of it."""
        if own is None:
            return
        account = self._accounts.get(own.name)
        if account is None:
            account = self._accounts[own.name] = _Account(0.0, 0.0, now, now)
        account.asked = now
        account.most = max(own.reserved_percent / 100 * window, cost)

    def take(self, own: Share | None, cost: float, window: float, pods: int, now: float) -> None:
        """A request of the class was admitted; `cost` is negative when it is given back."""
        account = None if own is None else self._accounts.get(own.name)
        if own is not None and account is not None:
            self._earn(own, account, window, pods, now)
            account.credit = min(max(account.credit - cost, 0.0), account.most)

    def _earn(self, one: Share, account: _Account, window: float, pods: int, now: float) -> None:
        earned = one.reserved_percent / 100 * pods * (now - account.updated)
        account.most = max(account.most, one.reserved_percent / 100 * window)
        account.credit = min(account.credit + earned, account.most)
        account.updated = now


def class_of(classes: Sequence[SizeClass], tokens: int) -> SizeClass | None:
    """The class with the largest `minimum_tokens` that the request reaches, if any."""
    fitting = [one for one in classes if tokens >= one.minimum_tokens]
    return max(fitting, key=lambda one: one.minimum_tokens, default=None)
