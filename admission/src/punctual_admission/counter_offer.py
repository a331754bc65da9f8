"""What a refused client could have instead: a shorter answer, or a later deadline.

Both are found by asking the decision itself, so whatever the rules are, what is offered is what
would be admitted at this moment, and one token more (one step of the deadline less) would not. The
search starts where the forecast of the refused request points to: the seconds that it misses its
deadline by are so many tokens of its own pace. There it takes two questions where the forecast is
exact, and doubling steps and halving otherwise.

A question walks the queue, so the longer that is, the fewer are asked: at most `MOST_WALKED`
places in all. When they are used up the offer is the best that was found, or none.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from punctual_admission.outcomes import Reason
from punctual_admission.ticket import CounterOffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from punctual_admission.policy import Policy
    from punctual_admission.ticket import Prediction, Request

    Fits = Callable[[Request], bool]

MOST_QUESTIONS = 16
FEWEST_QUESTIONS = 2
MOST_WALKED = 1000
"""Places of the queue that the questions of one search may walk over."""
FINENESS = 0.01
"""Step of an offered deadline, as a share of what the refused one needed; at least 1 ms."""
SHORTER_HELPS = frozenset(
    {
        Reason.DEADLINE_UNREACHABLE,
        Reason.TIER_SHARE_EXHAUSTED,
        Reason.WORK_LIMIT,
        Reason.POOL_HEADROOM_EXHAUSTED,
        Reason.MEMORY_EXHAUSTED,
    }
)
LATER_HELPS = frozenset({Reason.DEADLINE_UNREACHABLE, Reason.TIER_SHARE_EXHAUSTED})


def find_counter_offer(
    policy: Policy, request: Request, reason: Reason, prediction: Prediction, fits: Fits
) -> CounterOffer | None:
    """The counter-offer to a refusal; None when neither a shorter nor a later answer fits.

    `fits` says whether another request would be admitted at this moment.
    """
    tokens = budget = None
    questions = MOST_WALKED // (prediction.queued + 1)
    questions = min(max(questions, FEWEST_QUESTIONS), MOST_QUESTIONS)
    if reason in SHORTER_HELPS:
        tokens = _shorter(request, prediction, fits, questions)
    if reason in LATER_HELPS:
        budget = _later(policy, request, prediction, fits, questions)
    if tokens is None and budget is None:
        return None
    return CounterOffer(tokens, budget)


def _shorter(request: Request, prediction: Prediction, fits: Fits, questions: int) -> int | None:
    pace = prediction.service * prediction.margin / request.output_tokens
    over = ceil(prediction.excess / pace) if pace > 0 else 0
    guess = request.output_tokens - max(over, 1)
    found = largest(
        lambda less: fits(replace(request, output_tokens=less + 1)),
        request.output_tokens - 1,
        guess - 1,
        questions,
    )
    return None if found is None else found + 1


def _later(
    policy: Policy, request: Request, prediction: Prediction, fits: Fits, questions: int
) -> float | None:
    """Seconds from arrival: the longest allowed, less as many steps as still fit."""
    longest = policy.budget(float("inf"), request.tier)
    needed = request.budget + max(prediction.excess, 0.0)
    step = max(needed * FINENESS, 0.001)
    count = ceil((longest - request.budget) / step - 1e-9)
    found = largest(
        lambda less: fits(replace(request, deadline=request.arrival + longest - less * step)),
        count,
        int((longest - needed) / step),
        questions,
    )
    return None if found is None else longest - found * step


def largest(holds: Callable[[int], bool], end: int, guess: int, questions: int) -> int | None:
    """The largest number in [0, end) for which `holds`, asked at most so often; None: of none.

    `holds` is taken to be true up to some number, and false from `end` on.
    """
    low, high, step = -1, end, 1
    probe = min(max(guess, 0), end - 1)
    for _ in range(questions):
        if high - low <= 1:
            break
        if holds(probe):
            low = probe
        else:
            high = probe
        probe, step = _next_probe(low, high, end, step), step * 2
    return low if low >= 0 else None


def _next_probe(low: int, high: int, end: int, step: int) -> int:
    """Away from the guess in doubling steps until both sides are known, halving from then on."""
    if high == end:
        return min(low + step, high - 1)
    if low < 0:
        return max(high - step, 0)
    return (low + high) // 2
