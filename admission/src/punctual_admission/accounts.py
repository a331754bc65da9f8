"""The accounts of those among whom the policy divides the pool: size classes, tiers, clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from punctual_admission.quota import Quotas
from punctual_admission.shares import Shares, class_of

if TYPE_CHECKING:
    from punctual_admission.policy import Policy
    from punctual_admission.quota import Costs
    from punctual_admission.ticket import Request


class Accounts:
    """What each has earned and used; times are monotonic seconds, costs GPU-seconds."""

    def __init__(self) -> None:
        self.quotas = Quotas()
        self._sizes = Shares()
        self._tiers = Shares()

    def held(self, policy: Policy, request: Request, pods: int, now: float) -> float:
        """GPU-seconds that the request has to leave to other tiers and size classes."""
        window = policy.budget(None)
        size = class_of(policy.size_classes, request.output_tokens)
        tier = policy.tier(request.tier)
        held = self._sizes.hold(policy.size_classes, size, window, pods, now)
        return held + self._tiers.hold(policy.tiers, tier, window, pods, now)

    def quota_wait(self, policy: Policy, request: Request, cost: float, now: float) -> float:
        """Seconds until the client's quota allows the request; 0: now."""
        return self.quotas.wait(policy.quota, request.client, _costs(request, cost), now)

    def is_kept(self, policy: Policy, request: Request) -> bool:
        """Whether its tier or size class has a reserved share."""
        owners = (class_of(policy.size_classes, request.output_tokens), policy.tier(request.tier))
        return any(own is not None and own.reserved_percent > 0 for own in owners)

    def ask(self, policy: Policy, request: Request, cost: float, now: float) -> None:
        """A request came, whatever becomes of it."""
        window = policy.budget(None)
        self._sizes.ask(class_of(policy.size_classes, request.output_tokens), cost, window, now)
        self._tiers.ask(policy.tier(request.tier), cost, window, now)

    def take(
        self, policy: Policy, request: Request, cost: float, pods: int, now: float, sign: int = 1
    ) -> None:
        """A request was admitted; with `sign` -1 it is given back."""
        if request.client and policy.quota.active:
            costs = _costs(request, cost)
            self.quotas.take(policy.quota, request.client, costs, now, sign)
        if policy.divides:
            window, signed = policy.budget(None), sign * cost
            size = class_of(policy.size_classes, request.output_tokens)
            self._sizes.take(size, signed, window, pods, now)
            self._tiers.take(policy.tier(request.tier), signed, window, pods, now)


def _costs(request: Request, cost: float) -> Costs:
    """What a client's quota counts of a request."""
    return (1.0, float(request.prompt_tokens + request.output_tokens), cost)
