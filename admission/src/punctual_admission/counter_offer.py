"""What a refused client could have instead: a shorter answer, or a later deadline.

Both are found by asking the decision itself, so whatever the rules are, what is offered is what
would be admitted at this moment, and one token more (one step of the deadline less) would not. The
search starts where the forecast of the refused request points to: the seconds that it misses its
deadline by are so many tokens at the pace of a full pod. It goes on from there in doubling steps,
and then by halves: two questions where the forecast is exact, some ten for several slots. Deadlines
are tried in steps of a share of themselves, so that far ones are found as soon.

A question walks the queue, so the longer that is, the fewer are asked: at most `MOST_WALKED`
places in all. When they are used up the offer is the best that was found, or none.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, log
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
STEP = 1.02
"""Factor between the deadlines that are tried."""
SHORTER_HELPS = frozenset(
    {
        Reason.DEADLINE_UNREACHABLE,
        Reason.TIER_SHARE_EXHAUSTED,
        Reason.WORK_LIMIT,
        Reason.POOL_HEADROOM_EXHAUSTED,
        Reason.MEMORY_EXHAUSTED,
        Reason.SHORTER_FIRST,
    }
)
LATER_HELPS = frozenset({Reason.DEADLINE_UNREACHABLE, Reason.TIER_SHARE_EXHAUSTED})


def find_counter_offer(
    policy: Policy,
    request: Request,
    reason: Reason,
    prediction: Prediction,
    pace: float,
    fits: Fits,
) -> CounterOffer | None:
    """The counter-offer to a refusal; None when neither a shorter nor a later answer fits.

    `pace` is about how many seconds a token takes, and `fits` says whether another request would
    be admitted at this moment.
    """
    tokens = budget = None
    questions = MOST_WALKED // (prediction.queued + 1)
    questions = min(max(questions, FEWEST_QUESTIONS), MOST_QUESTIONS)
    crowded = prediction.wait + request.output_tokens * pace
    needed = prediction.spent + prediction.margin * max(prediction.sojourn, crowded)
    if reason in SHORTER_HELPS:
        over = ceil((needed - request.budget) / (prediction.margin * pace))
        tokens = _shorter(request, max(over, 1), fits, questions)
    if reason in LATER_HELPS:
        budget = _later(policy, request, max(needed, request.budget), fits, questions)
    if tokens is None and budget is None:
        return None
    return CounterOffer(tokens, budget)


def _shorter(request: Request, over: int, fits: Fits, questions: int) -> int | None:
    """The most tokens that fit, probably `over` less than were asked for."""
    found = largest(
        lambda number: fits(replace(request, output_tokens=number + 1)),
        request.output_tokens - 1,
        request.output_tokens - over - 1,
        questions,
    )
    return None if found is None else found + 1


def _later(
    policy: Policy, request: Request, needed: float, fits: Fits, questions: int
) -> float | None:
    """Seconds from arrival, about `needed`: the longest less all the steps that fit."""
    longest, shortest = policy.budget(float("inf"), request.tier), max(request.budget, 0.001)
    found = largest(
        lambda steps: fits(replace(request, deadline=request.arrival + longest / STEP**steps)),
        ceil(log(longest / shortest, STEP) - 1e-9),
        int(log(longest / max(needed, shortest), STEP)),
        questions,
    )
    return None if found is None else longest / STEP**found


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
