"""What a newcomer that has to wait must expect of those who join behind it.

The walk of `forecast` lets the pod empty behind the last one: it ends in the company of nobody,
at T(1). Whoever has to wait is in a contested pod, where every slot that falls free is taken
again. A promise made to the last instant on an emptying pod would then stand in the way: any later
joiner breaks it, and has to be refused although there is room. So who waits is promised its end in
a full pod, prefills of joiners included:

    first token + (n - 1) * T(S) + p * (K + Z * sqrt(K)),    K = (n - 1) * (S - 1) / E[n]

with n its output tokens, S slots, p the mean prefill and E[n] the mean output of those who wait
(or run, where nobody waits: the longer run longer, so they overstate it). K is the expected
number of joiners during n - 1 steps: each of S - 1 neighbours ends every E[n] steps and is
followed by the next. Z deviations of a Poisson count are added, since the tightest of S residents
decides. With one slot nothing is added: the end is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from punctual_admission.line import Ahead
    from punctual_admission.ticket import Ticket
    from punctual_admission.track import Item, Track

DEVIATIONS = 2.0
"""Z above."""


@dataclass(slots=True)
class Company:
    """Means over the requests that stand for those to come."""

    output_tokens: float = 1.0
    prompt_tokens: float = 0.0

    @classmethod
    def of(cls, tickets: Iterable[Ticket]) -> Company:
        """The means; of nobody, the least company there can be."""
        count = prompts = 0
        outputs = 0.0
        for ticket in tickets:
            count += 1
            outputs += ticket.expected_tokens
            prompts += ticket.request.prompt_tokens
        return cls(max(outputs / count, 1.0), prompts / count) if count else cls()

    @classmethod
    def waiting(cls, ahead: Ahead) -> Company:
        """The means of at least one who waits."""
        count = ahead.requests
        return cls(ahead.steps / count + 1, ahead.prompt_tokens / count)

    def crowded_end(self, item: Item, track: Track) -> float:
        """When `item` ends if the pod stays full behind it; its first token must be known."""
        steps = max(item.output_tokens - 1, 0)
        joiners = steps * (track.slots - 1) / self.output_tokens
        prefill = track.prefill_base + track.prefill_token * self.prompt_tokens
        allowance = prefill * (joiners + DEVIATIONS * sqrt(joiners))
        return item.first_token + steps * track.steps[-1] + allowance
