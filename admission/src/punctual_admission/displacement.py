"""Whom to give up so that more are on time.

Moore and Hodgson (1968): go through the jobs in order of their deadlines; at the first one that
is late, drop the longest of those up to it. For jobs that are all present on one machine this
makes as many on time as any schedule can. Here the queue was feasible before the newcomer, so one
drop restores it on one slot; with several slots the drop is verified by the forecast, and the
newcomer is refused when it does not help. Running requests are never given up, and those of a size
class with a reserved share are not either.

At its turn a request that would stand in the way of more than it is worth (see `regret`) lets a
shorter one pass, as long as everybody who is passed stays on time; it is given up where none may.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest

from punctual_admission.forecast import Forecast, Lateness, Trial
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Ticket
from punctual_admission.track import Item, item_of

ATTEMPTS = 3
"""How many of the longest are tried: on one slot the first is right."""


def find_displaced(
    forecast: Forecast,
    queue: Sequence[Ticket],
    place: int,
    newcomer: Item,
    test: Lateness,
    engine: ServiceModel,
    trial: Trial,
) -> tuple[Trial, Ticket | None]:
    """The waiting request whose removal lets the newcomer and all others be on time, or None.

    `trial` is what inserting the newcomer at `place` gave with nobody removed.
    """
    if trial.fits or trial.first_late is None:
        return trial, None
    # The late one's place counts the newcomer, so a queue index below it stands ahead of it.
    ahead = queue[: trial.first_late + (trial.first_late < place)]
    per_token, step = engine.prefill_per_token, engine.step_seconds[-1]
    own = per_token * newcomer.prompt_tokens + step * newcomer.output_tokens
    lengths = [per_token * t.request.prompt_tokens + step * t.expected_tokens for t in ahead]
    longer = [
        (length, index)
        for index, length in enumerate(lengths)
        if length > own and not ahead[index].kept
    ]
    for _, index in nlargest(ATTEMPTS, longer):
        attempt = forecast.insert(place, newcomer, test, without=index)
        if attempt.fits:
            return attempt, queue[index]
    if longer:
        # The attempts have overwritten the newcomer's times, which a refusal quotes.
        forecast.insert(place, newcomer, test)
    return trial, None


def find_passing(
    forecast: Forecast, queue: Sequence[Ticket], place: int, test: Lateness
) -> int | None:
    """The place of the first shorter one behind `place`, if it may start now; None: it may not.

    It may if nobody whom it passes becomes late by it. What waits at another gateway is not ours
    to start.
    """
    for index in range(place + 1, len(queue)):
        ticket = queue[index]
        if ticket.cost < queue[place].cost and not ticket.peer:
            trial = forecast.insert(0, item_of(ticket), test, without=index)
            return index if trial.fits else None
    return None
