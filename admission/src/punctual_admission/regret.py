"""How many answers are lost if a long request is started now; for `displacement: Longest`.

Moore and Hodgson (see `displacement`) give up the longest as soon as somebody is late by it. What
has been started cannot be given up any more, so under overload the damage is done before: a long
request starts while there is room, and those who come meanwhile find none. The future is not
known, but how it usually looks is, from the last `WINDOW` offers. Of those shorter than the request
in question let the pool be offered

    rho = sum(x) / t     seconds of work a second         x   seconds of the whole pool each
    v   = sum(x^2) / t   variance of that                 t   seconds since the oldest offer
    z   = mean(x)

Unfinished work y of such requests moves like a Brownian motion with drift rho - 1 and variance v,
between 0 (nothing waits) and the deadline budget D (somebody has to be turned away). It gets to D
before it gets to 0 with probability

    P(y) = (exp(h y) - 1) / (exp(h D) - 1),    h = 2 (1 - rho) / v        (rho = 1: y / D)

and once there each second of work that is in the way turns away 1 / z requests. A request of s
seconds ahead of q seconds of shorter work therefore loses

    R = 1 / z * integral of P from q to q + s

answers, to win one. If R > `GIVEN_UP` at its turn, a shorter one that waits passes it where no
promise is broken by that, and it is asked again at the next turn; where none can, it is given up.
The limit is less than 1, for a start also loses what the pool would have had time for instead. One
that would likely be given up is turned away at once, which is kinder: at its arrival q is taken as
rho times its wait, and the limit is `TURNED_AWAY`, higher because that is a guess, and because who
is let in for now may find its moment while shorter ones pass.

All this is for a pool of one slot. With more, one long request takes a part of the pool only, so
there is little to win (measured: under 0.1 % of the answers), and giving up one can make others
later.

The ruin probability of a Brownian motion is in any textbook (Karlin and Taylor 1975, chapter 7);
that loss is charged by the second of work follows Kelly's shadow prices (Kelly 1991).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import exp, expm1, floor, log2

WINDOW = 512
"""Offers that are remembered: half a minute of an overloaded pod."""
EVIDENCE = 64
"""Offers that have to be known first; the first requests after a start are not turned away."""
SIZES = 4
"""Requests are told apart by cost in so many steps an octave, so that few have to be worked out."""
REFRESH = 64
"""Offers after which what was worked out from them is worked out again."""
GIVEN_UP = 0.4
TURNED_AWAY = 2.0
_EVEN = 1e-3
"""|h D| below which the load is taken to be exactly 1."""
_HOPELESSLY_FAR = 300.0
"""h D above which D is never reached; exp would overflow beyond 700."""


@dataclass(frozen=True, slots=True)
class Rush:
    """What is offered that is shorter than a certain request."""

    load: float
    """rho above."""
    variance: float
    """v above, seconds."""
    mean: float
    """z above, seconds."""

    def turned_away(self, seconds: float, ahead: float, budget: float) -> float:
        """R above, for a request of `seconds`, with `ahead` seconds of shorter work waiting."""
        rate = 2 * (1 - self.load) / self.variance
        below = max(min(ahead + seconds, budget) - ahead, 0.0)
        if abs(rate) * budget < _EVEN:
            area = below * (ahead + below / 2) / budget
        elif rate * budget > _HOPELESSLY_FAR:
            area = 0.0
        else:
            area = (exp(rate * (ahead + below)) - exp(rate * ahead)) / rate - below
            area /= expm1(rate * budget)
        return (area + seconds - below) / self.mean


class Regret:
    """Remembers what was offered; `cost` is in GPU-seconds, times are monotonic seconds."""

    def __init__(self) -> None:
        self._offers: deque[tuple[float, float]] = deque()
        self._known: dict[int, Rush | None] = {}
        self._until_refresh = 0

    def observe(self, now: float, cost: float) -> None:
        """A request was offered, whatever became of it."""
        self._offers.append((now, cost))
        if len(self._offers) > WINDOW:
            self._offers.popleft()
        self._until_refresh -= 1
        if self._until_refresh <= 0:
            self._known.clear()
            self._until_refresh = REFRESH

    def rush(self, cost: float, pods: int, now: float, budget: float) -> Rush | None:
        """What is offered that costs less; None: nothing, or too little is known.

        A burst is no rush: what came within less than `budget` seconds counts as spread over it.
        """
        if len(self._offers) < EVIDENCE or cost <= 0:
            return None
        size = floor(log2(cost) * SIZES)
        if size not in self._known:
            self._known[size] = self._shorter(2 ** (size / SIZES), pods, now, budget)
        return self._known[size]

    def _shorter(self, limit: float, pods: int, now: float, budget: float) -> Rush | None:
        shorter = [one / pods for _, one in self._offers if 0 < one < limit]
        seconds = max(now - self._offers[0][0], budget)
        if not shorter or seconds <= 0:
            return None
        work, squares = sum(shorter), sum([one * one for one in shorter])
        return Rush(work / seconds, squares / seconds, work / len(shorter))
