"""A scout: an answer without a promise, of a kind that is refused because of its length.

Lengths are learned from what is served. So a kind of request whose length is not known (cold, and
its maximum out of reach), or whose answers became too long for its deadline, would be refused for
ever: nobody of it is served, and nothing new is learned. Therefore one is let through where it is
refused although a slot is free and nobody waits. It harms nobody who was promised anything:

- it is cut at its deadline, and counts as all the tokens that it can make until then, so whoever
  comes later is promised no room that it may need;
- it is held to no promise itself, so nobody is refused for its sake;
- all others on its pod stay in time by the forecast, as with every newcomer.

A scout of a known kind that comes late is followed by the next after `REST_SECONDS`, or after
`REST_BUDGETS` times its deadline's budget where that is longer: at most one answer of a kind is
late in so many seconds, and at most 1 / `REST_BUDGETS` of one slot is lost. One that is in time is
followed at once. Each takes the place of the oldest answer that it was judged by (see
`output_length`), so as many as there are neighbours renew all that was known. Of a cold kind every
answer is needed: its scouts follow each other without a rest until it is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from punctual_admission.output_length import OutputLength

if TYPE_CHECKING:
    from collections.abc import Sequence

    from punctual_admission.output_length import OutputLengths
    from punctual_admission.policy import Policy
    from punctual_admission.pool import Pod
    from punctual_admission.ticket import Request

REST_SECONDS = 300.0
REST_BUDGETS = 20


def scout_length(
    policy: Policy,
    pods: Sequence[Pod],
    lengths: OutputLengths,
    request: Request,
    margin: float,
    now: float,
) -> OutputLength | None:
    """What a refused request counts as if it goes as a scout to one of the pods; None: it may not.

    Nobody must wait. No more scouts run at once than there are pods.
    """
    if not policy.cuts_late_answers or not lengths.may_scout(request, now):
        return None
    free = [pod for pod in pods if pod.free_slots and pod.paused_until <= now]
    if not free or _scouting(pods) >= len(pods):
        return None
    seconds = (request.deadline - now) / margin
    within = max([_tokens_within(pod, request, seconds, now) for pod in free])
    if within < 1 or lengths.estimate(request).longest <= within:
        return None
    length = OutputLength.of((float(within),))
    length.scouts = True
    return length


def rest(request: Request) -> float:
    """Seconds from one scout of a known kind to the next, unless it is in time."""
    return max(REST_SECONDS, REST_BUDGETS * request.budget)


def _scouting(pods: Sequence[Pod]) -> int:
    return sum([ticket.scouts for pod in pods for ticket in pod.residents.values()])


def _tokens_within(pod: Pod, request: Request, seconds: float, now: float) -> int:
    """Tokens that surely come within so many seconds if it joins the pod now."""
    batch = len(pod.residents) + len(pod.foreign) + 1
    left = seconds - (pod.boundary(now) - now)
    return pod.engine.tokens_within(request.prompt_tokens, left, batch)
