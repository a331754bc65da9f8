"""Whom to give up so that more are on time.

Moore and Hodgson (1968): go through the jobs in order of their deadlines; at the first one that
is late, drop the longest of those up to it. For jobs that are all present on one machine this
makes as many on time as any schedule can. Here the queue was feasible before the newcomer, so one
drop restores it on one slot; with several slots the drop is verified by the forecast, and the
newcomer is refused when it does not help. Running requests are never given up.
"""

from __future__ import annotations

from collections.abc import Sequence

from punctual_admission.forecast import Forecast, Lateness, Trial
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Request, Ticket
from punctual_admission.track import Item

ATTEMPTS = 3
"""How many of the longest are tried: on one slot the first is right."""


def find_displaced(
    forecast: Forecast,
    queue: Sequence[Ticket],
    place: int,
    newcomer: Item,
    test: Lateness,
    engine: ServiceModel,
) -> tuple[Trial, Ticket | None]:
    """The waiting request whose removal lets the newcomer and all others be on time, or None."""
    trial = forecast.insert(place, newcomer, test)
    if trial.fits or trial.first_late is None:
        return trial, None
    own = engine.crowded(newcomer.prompt_tokens, newcomer.output_tokens)
    lengths = [(_length(engine, ticket.request), index) for index, ticket in enumerate(queue)]
    # The late one's place counts the newcomer, so a queue index below it stands ahead of it.
    longer = sorted(
        (
            (length, index)
            for length, index in lengths
            if length > own and index + (index >= place) <= trial.first_late
        ),
        reverse=True,
    )
    for _, index in longer[:ATTEMPTS]:
        attempt = forecast.insert(place, newcomer, test, without=index)
        if attempt.fits:
            return attempt, queue[index]
    forecast.insert(place, newcomer, test)
    return trial, None


def _length(engine: ServiceModel, request: Request) -> float:
    return engine.crowded(request.prompt_tokens, request.output_tokens)
