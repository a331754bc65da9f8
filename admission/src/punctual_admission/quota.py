"""What each client may still ask for: one token bucket for each client and each limit.

A bucket is kept as what was used of it, u, which falls by the limit's rate r a second. With b
seconds of burst it holds c = r * b (at least one request), and a request that costs x is allowed
when

    u + min(x, c) <= c,        otherwise after (u + min(x, c) - c) / r seconds.

A request larger than the whole bucket so waits for a full one, and its rest is a debt. All limits
are checked first; only what is admitted is taken, and given back if it is dropped unstarted.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from punctual_admission.limits import UNLIMITED

if TYPE_CHECKING:
    from punctual_admission.limits import Quota

Costs = tuple[float, float, float]
"""Requests, tokens, GPU-seconds."""
NOTHING: Costs = (0.0, 0.0, 0.0)


@dataclass(slots=True)
class _Account:
    updated: float
    used: list[float] = field(default_factory=lambda: list(NOTHING))


class Quotas:
    """The accounts of the clients seen last; times are monotonic seconds."""

    def __init__(self) -> None:
        self._accounts: OrderedDict[str, _Account] = OrderedDict()

    def __len__(self) -> int:
        """How many clients are remembered."""
        return len(self._accounts)

    def wait(self, quota: Quota, client: str, costs: Costs, now: float) -> float:
        """Seconds until the client may ask for so much; 0: it may now. Changes nothing."""
        account = self._accounts.get(client)
        if account is None:
            return 0.0
        longest, passed = 0.0, now - account.updated
        for used, cost, rate in zip(account.used, costs, quota.limits, strict=True):
            if rate != UNLIMITED:
                holds = _holds(quota, rate, cost)
                over = max(used - rate * passed, 0.0) + min(cost, holds) - holds
                longest = max(longest, over / rate)
        return longest if longest > 1e-9 else 0.0  # sums of floats

    def take(self, quota: Quota, client: str, costs: Costs, now: float, sign: int = 1) -> None:
        """The client was admitted for so much; with `sign` -1 it is given back."""
        account = self._accounts.get(client)
        if account is None:
            account = self._accounts[client] = _Account(now)
        self._accounts.move_to_end(client)
        passed = now - account.updated
        account.updated = now
        for index, rate in enumerate(quota.limits):
            left = 0.0 if rate == UNLIMITED else max(account.used[index] - rate * passed, 0.0)
            account.used[index] = max(left + sign * costs[index], 0.0)
        while len(self._accounts) > quota.maximum_clients:
            self._accounts.popitem(last=False)


def _holds(quota: Quota, rate: float, cost: float) -> float:
    """What a bucket holds; a limit below one request in a burst still lets one through."""
    return max(rate * quota.burst_seconds, min(cost, 1.0))
