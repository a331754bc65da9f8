"""When a refused client should come back.

For a promise that would miss its deadline by x seconds: the backlog shrinks by about one second
of wait per second (nothing else arriving), so the same request fits x seconds later. For a full
queue: when the next place falls free. For a client's own quota:
when it has refilled. Spread over [1, 1.5) times that, so that clients who were refused together
do not come back together. RFC 9110 wants whole seconds in `Retry-After`;
`retry-after-ms` carries the exact value.
"""

from __future__ import annotations

import math

from punctual_admission.outcomes import Reason
from punctual_admission.ticket import Prediction

SPREAD = 0.5
SHORTEST, LONGEST = 0.05, 60.0
"""Seconds; clients obey at most about a minute."""
WITHOUT_PODS = 5.0
"""Seconds to wait for a pod: nothing is known of when one comes."""
WHILE_DRAINING = 1.0
"""Seconds until other replicas have taken over."""
_UNTIL_IT_FITS = (Reason.DEADLINE_UNREACHABLE, Reason.TIER_SHARE_EXHAUSTED)
_QUOTA, _NO_PODS = Reason.CLIENT_QUOTA_EXCEEDED, Reason.POOL_EXHAUSTED
_DRAINING, _SHORTER_FIRST = Reason.DRAINING, Reason.SHORTER_FIRST


def retry_delay(
    reason: Reason,
    prediction: Prediction,
    to_next_end: float,
    uniform: float,
    quota_wait: float = 0.0,
) -> float:
    """Seconds until a retry has a chance, jittered by `uniform` in [0, 1)."""
    quota = reason is _QUOTA
    delay = quota_wait if quota else _delay(reason, prediction, to_next_end)
    delay = delay * (1 + SPREAD * uniform)
    return min(max(delay, SHORTEST), LONGEST)


def _delay(reason: Reason, prediction: Prediction, to_next_end: float) -> float:
    if reason is _NO_PODS:
        return WITHOUT_PODS
    if reason is _DRAINING:
        return WHILE_DRAINING
    if reason in _UNTIL_IT_FITS:
        return max(prediction.excess, to_next_end)
    if reason is _SHORTER_FIRST:
        return max(prediction.wait, to_next_end)
    return to_next_end


def header_seconds(delay: float) -> int:
    """`delay` for the `Retry-After` header: whole seconds from 1 to 60."""
    return min(max(math.ceil(delay), 1), int(LONGEST))
