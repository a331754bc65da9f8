"""The reference workload: one GPT-2, one request at a time, lengths 4/16/64, deadline 2 seconds.

Service takes 8.4 ms a token plus about 1 ms. `slow` multiplies every time: 2.25 is the slower
machine of the reference. Load is utilisation, rho = lambda * E[S] with E[S] at that speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from punctual_admission.policy import Policy, policy_from_object
from punctual_admission.service_time import ServiceModel
from punctual_lab.policies import ALL_MODES, ModeUnderTest, build_policy
from punctual_lab.simulate.world import Arrival
from punctual_lab.traces import REFERENCE_MIX, Trace, build_poisson_trace, rate_for_load

if TYPE_CHECKING:
    from collections.abc import Iterable

TOKEN_SECONDS = 0.0084
INTERCEPT_SECONDS = 0.001
DEADLINE_SECONDS = 2.0
QUEUE_LIMIT = 8
SLOW = 2.25
"""How much slower the reference's other machine is."""
MODES = {mode.name: mode for mode in ALL_MODES}


def reference_model(slow: float = 1.0) -> ServiceModel:
    """The reference's engine: n tokens take 1 ms + n * 8.4 ms, times `slow`."""
    prefill = INTERCEPT_SECONDS + TOKEN_SECONDS
    return ServiceModel((TOKEN_SECONDS * slow,), prefill_base=prefill * slow)


def mean_service_seconds(slow: float = 1.0) -> float:
    """E[S] of the reference mix in seconds."""
    return (INTERCEPT_SECONDS + TOKEN_SECONDS * REFERENCE_MIX.mean()) * slow


def reference_policy(mode: ModeUnderTest, **changes: object) -> Policy:
    """The policy of one mode with the reference's deadline and queue; `changes` go to the spec."""
    written = build_policy(mode, deadline_ms=int(DEADLINE_SECONDS * 1000), queue_limit=QUEUE_LIMIT)
    written["spec"].update(changes)
    return policy_from_object(written)


def reference_arrivals(load: float, seconds: float, seed: int, slow: float = 1.0) -> list[Arrival]:
    """Poisson arrivals of the reference mix at a load, for so many virtual seconds."""
    rate = rate_for_load(load, mean_service_seconds(slow))
    trace = build_poisson_trace(
        rate_per_second=rate, duration_seconds=seconds, seed=seed, prompt_tokens=0
    )
    return arrivals_of(trace)


def arrivals_of(trace: Trace, budget: float = DEADLINE_SECONDS) -> list[Arrival]:
    """A load generator's trace for the simulator; `budget` where no deadline is given."""
    return [
        Arrival(
            request.at_seconds,
            request.prompt_tokens,
            request.max_tokens,
            budget if request.deadline_ms is None else request.deadline_ms / 1000,
        )
        for request in trace
    ]


def offered_load(arrivals: Iterable[Arrival], seconds: float, model: ServiceModel) -> float:
    """The load that a drawn workload came to: engine seconds asked for per second."""
    asked = sum(model.alone(a.prompt_tokens, a.actual_tokens) for a in arrivals)
    return asked / seconds
