"""A scout: an answer without a promise, of a kind that is refused because of its length.

Lengths are learned from what is served. So a kind of request whose length is not known (cold, and
its maximum out of reach), or whose answers became too long for its deadline, would be refused for
ever: nobody of it is served, and nothing new is learned. Therefore one is let through where it is
refused although a slot is free and nobody waits. It harms nobody who was promised anything:

- it is cut at its deadline, and counts as all the tokens that it can make until then, so whoever
  comes later is promised no room that it may need;
- it is held to no promise itself, so nobody is refused for its sake;
- all others on its pod stay in time by the forecast, as with every newcomer;
- half of all slots are left to others.

What scouts may cost. By what is known a scout is in time with a chance c, so it stakes 1 - c of a
late answer. It goes if the budget B of its group (those that learn together) has so much:

    B >= 1 - c;     B falls by 1 - c at its start, and gets that back at its end;
                    B falls by 1 if it is late;     B <= 1

B grows by 1 - q with each that is refused where it could have gone, q being the certainty with
which a length must fit, and by one in `CREDIT_SECONDS`, for where few come. So of those whom
lengths refuse at most a share of 1 - q is late by scouts, or one in `CREDIT_SECONDS`; those go
first who are most likely to be in time; and a scout in time is followed at once, since it costs
nothing, so a kind that fits again is soon back.

Of a cold kind every answer is needed: its scouts stake nothing until it is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from punctual_admission.outcomes import Outcome
from punctual_admission.output_length import OutputLength

if TYPE_CHECKING:
    from collections.abc import Sequence

    from punctual_admission.output_length import OutputLengths
    from punctual_admission.policy import Policy
    from punctual_admission.pool import Pod
    from punctual_admission.ticket import Request

CREDIT_SECONDS = 300.0
_EPSILON = 1e-9


class Scouts:
    """Sends scouts, and keeps the budget of each group."""

    def __init__(self, lengths: OutputLengths) -> None:
        self._lengths = lengths
        self._budgets: dict[str, _Budget] = {}

    def length(
        self,
        policy: Policy,
        pods: Sequence[Pod],
        request: Request,
        margin: float,
        now: float,
    ) -> OutputLength | None:
        """What a refused request counts as if it scouts on one of the pods; None: it may not.

        Nobody must wait.
        """
        free = [pod for pod in pods if pod.free_slots and pod.paused_until <= now]
        if not free or not policy.cuts_late_answers or not _leaves_room(pods):
            return None
        seconds = (request.deadline - now) / margin
        within = max([_tokens_within(pod, request, seconds, now) for pod in free])
        known = self._lengths.estimate(request)
        if within < 1 or known.longest <= within:
            return None
        length = OutputLength.of((float(within),))
        length.scouts, length.cold = True, known.cold
        if not known.cold:
            length.stake = 1 - known.chance(within, 0.0)
            budget = self._budgets.setdefault(self._lengths.group(request), _Budget(now))
            if not budget.allows(length.stake, now):
                budget.add(1 - policy.length_certainty)
                return None
        return length

    def start(self, request: Request, length: OutputLength) -> None:
        """A scout goes."""
        if not length.cold:
            self._budgets[self._lengths.group(request)].add(-length.stake)

    def end(self, request: Request, length: OutputLength, outcome: Outcome) -> None:
        """A scout has ended."""
        if not length.cold:
            late = outcome is Outcome.LATE
            self._budgets[self._lengths.group(request)].add(length.stake - late)


@dataclass(slots=True)
class _Budget:
    """Late answers that the scouts of a group may still cost, at most one."""

    updated: float
    credit: float = 1.0

    def allows(self, stake: float, now: float) -> bool:
        """Whether so much may be staked now."""
        passed, self.updated = now - self.updated, now
        self.add(passed / CREDIT_SECONDS)
        return self.credit >= stake - _EPSILON

    def add(self, credit: float) -> None:
        """Give, or take."""
        self.credit = min(self.credit + credit, 1.0)


def _leaves_room(pods: Sequence[Pod]) -> bool:
    """Whether one more scout leaves half of all slots to others, or each pod has one at most."""
    scouts = sum([ticket.scouts for pod in pods for ticket in pod.residents.values()])
    return scouts < max(len(pods), sum([pod.slots for pod in pods]) // 2)


def _tokens_within(pod: Pod, request: Request, seconds: float, now: float) -> int:
    """Tokens that surely come within so many seconds if it joins the pod now."""
    batch = len(pod.residents) + len(pod.foreign) + 1
    left = seconds - (pod.boundary(now) - now)
    return pod.engine.tokens_within(request.prompt_tokens, left, batch)
