"""ObjectiveAttainable: whether the pool can keep the policy's deadline at all, and under its load.

Three bounds, all from what the pods measured about themselves (or, for pods that do not describe
themselves, from `backend`), times the running ratio of actual to predicted time:

- the fastest possible answer of n tokens, alone on the fastest pod: base + per_token + (n - 1) T(1)
  (the first token comes from the prefill); with the objective FirstToken: base + per_token;
- the same answer where it has to wait while tiers or size classes ask for their reserved shares:
  they may save r % of a default deadline of engine time on each pod; who waits leaves them that;
- the load that the usable pods can carry. A request's work is the engine time that it takes out of
  a full batch of S, prefill + (n - 1) T(S) / S, so each pod carries one GPU-second per second.
"""

from __future__ import annotations

import dataclasses
import math

from punctual_admission.policy import Mode, Objective, Policy
from punctual_admission.shares import class_of
from punctual_operator.conditions import ConditionType, Finding, Status, false, true, unknown
from punctual_operator.observed import Observed
from punctual_operator.policies import AdmissionPolicy

KIND = ConditionType.OBJECTIVE_ATTAINABLE
RECOVERY = 0.9
"""Share of what can be carried below which `TooFewPods` ends, so that it does not come and go."""


@dataclasses.dataclass(frozen=True, slots=True)
class Speed:
    """What a pod can do; seconds."""

    prefill: float
    step: float

    def answer(self, tokens: int) -> float:
        """The fastest possible answer."""
        return self.prefill + (tokens - 1) * self.step


def diagnose_objective(policy: AdmissionPolicy, observed: Observed) -> Finding:
    """The first of the bounds that is broken."""
    speeds = _speeds(policy.decision, observed)
    if not speeds:
        return unknown(
            KIND,
            "NoMeasurement",
            "no model pod has reported its speed yet; for servers that never do (vLLM), give it in "
            "`backend.stepMicroseconds`",
        )
    decision = policy.decision
    return (
        _too_slow(decision, speeds)
        or _share_too_small(decision, speeds)
        or _load(policy, observed, speeds)
    )


def _too_slow(policy: Policy, speeds: list[Speed]) -> Finding | None:
    tokens = _default_tokens(policy)
    best = min(speeds, key=lambda speed: speed.answer(tokens))
    needed, deadline = best.answer(tokens), policy.deadline.default_milliseconds / 1000
    if needed <= deadline:
        return None
    remedy = f"raise `deadline.defaultMilliseconds` to at least {math.ceil(needed * 1000)}"
    fitting = _fitting_tokens(best, deadline)
    if fitting and tokens > 1:
        remedy += f", lower `requests.defaultMaxTokens` to at most {fitting},"
    return false(
        KIND,
        "ModelTooSlow",
        f"the fastest possible answer of {_tokens(tokens)} takes {_seconds(needed)}, the deadline "
        f"is {_seconds(deadline)}: every such request is refused; {remedy} or use faster pods",
    )


def _share_too_small(policy: Policy, speeds: list[Speed]) -> Finding | None:
    """What others have reserved leaves a default request too little to wait in at all."""
    if policy.mode is not Mode.PREDICTIVE:
        return None
    tokens = _default_tokens(policy)
    needed = min(speed.answer(tokens) for speed in speeds)
    window = policy.budget(None)
    for name in ("", *(tier.name for tier in policy.tiers)):
        reserved, budget = _reserved_for_others(policy, name), policy.budget(None, name)
        left = budget - reserved / 100 * window
        if reserved and needed > left:
            who = f"tier '{name}'" if name else "requests without a tier"
            return false(
                KIND,
                "ShareTooSmall",
                f"{who}: others have {reserved} % of engine time reserved, so that who waits has "
                f"{_seconds(max(left, 0.0))} of the deadline of {_seconds(budget)} left, and an "
                f"answer of {_tokens(tokens)} takes {_seconds(needed)}: while they ask, all that "
                "have to wait are refused; lower `reservedPercent` or raise the deadline",
            )
    return None


def _reserved_for_others(policy: Policy, tier: str) -> int:
    """Percent that a default request of the tier has to leave to other tiers and size classes."""
    own = class_of(policy.size_classes, policy.requests.default_max_tokens)
    tiers = sum(one.reserved_percent for one in policy.tiers if one.name != tier)
    return tiers + sum(one.reserved_percent for one in policy.size_classes if one is not own)


def _default_tokens(policy: Policy) -> int:
    """Tokens until the objective is met, of a request that names no `max_tokens`."""
    return 1 if policy.objective is Objective.FIRST_TOKEN else policy.requests.default_max_tokens


def _fitting_tokens(speed: Speed, deadline: float) -> int:
    if speed.prefill > deadline:
        return 0
    return 1 + math.floor((deadline - speed.prefill) / speed.step) if speed.step else 0


def _load(policy: AdmissionPolicy, observed: Observed, speeds: list[Speed]) -> Finding:
    offered = sum(report.offered_load or 0.0 for report in observed.reports.values())
    limit = len(speeds) * (RECOVERY if _was_short(policy) else 1.0)
    if offered <= limit:
        return true(KIND, "Attainable", _attainable(policy.decision))
    return false(
        KIND,
        "TooFewPods",
        f"requests ask for the work of at least {math.ceil(offered)} pods, {len(speeds)} can be "
        "used; add model pods (see `autoscaling`), or expect what is above to be refused",
    )


def _was_short(policy: AdmissionPolicy) -> bool:
    return any(
        condition.get("type") == KIND
        and condition.get("status") == Status.FALSE
        and condition.get("reason") == "TooFewPods"
        for condition in policy.status.get("conditions") or ()
    )


def _attainable(policy: Policy) -> str:
    deadline = _seconds(policy.deadline.default_milliseconds / 1000)
    if policy.objective is Objective.FIRST_TOKEN:
        return f"the first token can come within the deadline of {deadline}"
    tokens = policy.requests.default_max_tokens
    return f"an answer of {_tokens(tokens)} can be given within the deadline of {deadline}"


def _speeds(policy: Policy, observed: Observed) -> list[Speed]:
    """One for each pod that can be used, as far as it is known how fast it is."""
    reported = {
        pod.url: Speed(
            (pod.prefill_base + pod.prefill_per_token) * pod.ratio, pod.step_seconds[0] * pod.ratio
        )
        for report in observed.reports.values()
        for pod in report.pods
        if pod.usable and pod.step_seconds
    }
    backend = policy.backend
    if reported or not backend.step_microseconds:
        return list(reported.values())
    prefill = backend.prefill_base_microseconds + backend.prefill_token_microseconds
    assumed = Speed(prefill / 1e6, backend.step_microseconds[0] / 1e6)
    return [assumed] * max(observed.ready_endpoints, 1)


def _tokens(count: int) -> str:
    return "one token" if count == 1 else f"{count} tokens"


def _seconds(value: float) -> str:
    """Two significant digits: exact figures belong in metrics, not in a status."""
    if value < 1:
        return f"{float(f'{value * 1000:.2g}'):g} ms"
    return f"{float(f'{value:.2g}'):g} s" if value < 10 else f"{round(value)} s"
