"""The forecast for one pod with one slot that is busy: everybody starts where the one ahead ends.

Then no walk is needed. Who stands at the tail starts when the running request ends plus the sum
of the services ahead, and that sum needs a few whole numbers, which the ledger keeps as requests
come and go: how many wait, their prompt tokens, their steps after the first token, and the
variance of those where lengths are learned. Putting a request in or leaving one out moves
everybody behind by its service.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from punctual_admission.forecast import Lateness
    from punctual_admission.pool import Pod
    from punctual_admission.service_time import ServiceModel
    from punctual_admission.ticket import Ticket
    from punctual_admission.track import Item

_EPSILON = 1e-9
UNIT = 10**9


@dataclass(slots=True)
class Ahead:
    """What waits, summed up. Whole numbers, so that coming and going leaves nothing behind."""

    requests: int = 0
    prompt_tokens: int = 0
    known_steps: int = 0
    """Steps after the first token where lengths are known."""
    whole_steps: int = 0
    """Those of learned lengths, which are no whole numbers, in units of 1 / UNIT."""
    whole_variance: int = 0
    """Variance of the output tokens, in the same units."""

    @property
    def steps(self) -> float:
        """Steps after the first tokens."""
        return self.known_steps + self.whole_steps / UNIT

    @property
    def variance(self) -> float:
        """Variance of the output tokens."""
        return self.whole_variance / UNIT

    @classmethod
    def of(cls, queue: Sequence[Ticket]) -> Ahead:
        """Sum up a queue."""
        total = cls()
        for ticket in queue:
            total.add(ticket)
        return total

    def add(self, ticket: Ticket, sign: int = 1) -> None:
        """Count a request in, or out with `sign` -1."""
        request, length = ticket.request, ticket.length
        self.requests += sign
        self.prompt_tokens += sign * request.prompt_tokens
        if length is None:
            self.known_steps += sign * (request.output_tokens - 1)
        else:
            self.whole_steps += sign * round(UNIT * (length.mean - 1))
            self.whole_variance += sign * round(UNIT * length.variance)


class Line:
    """The queue in front of one busy slot; `queue` is only read when somebody is overtaken."""

    __slots__ = (
        "_ahead", "_base", "_ends", "_per_token", "_queue", "_running", "_step", "free_at",
    )  # fmt: skip

    def __init__(
        self,
        engine: ServiceModel,
        free_at: float,
        queue: Sequence[Ticket],
        ahead: Ahead,
        running: float,
    ) -> None:
        """`free_at`: when the slot falls free; `running`: variance of the tokens until then."""
        self.free_at = free_at
        self._queue = queue
        self._running = running
        self._ahead = ahead
        self._base, self._per_token = engine.prefill_base, engine.prefill_per_token
        self._step = engine.step_seconds[0]
        self._ends: list[tuple[float, float]] | None = None

    @classmethod
    def before(
        cls, pod: Pod, queue: Sequence[Ticket], ahead: Ahead | None, now: float
    ) -> Line | None:
        """The queue before `pod`; None where it has to be walked."""
        if len(pod.residents) != 1 or pod.slots != 1 or pod.foreign:
            return None
        (running,) = pod.residents.values()
        engine = pod.engine
        free_at = _free_at(pod, running, engine.step_seconds[0], now)
        return cls(engine, free_at, queue, ahead or Ahead.of(queue), running.uncertainty)

    def append(self, newcomer: Item, test: Lateness) -> bool:
        """Whether `newcomer` fits at the tail; its times are filled in."""
        ahead = self._ahead
        if newcomer.length is not None:
            newcomer.start_deviation = self._step * sqrt(self._running + ahead.variance)
        start = self.free_at
        if ahead.requests:
            start = (
                start
                + self._base * ahead.requests
                + self._per_token * ahead.prompt_tokens
                + self._step * (ahead.known_steps + ahead.whole_steps / UNIT)
            )
        self._seat(newcomer, start)
        return not test.late(newcomer)

    def insert(self, place: int, newcomer: Item, test: Lateness, without: int | None) -> int | None:
        """The place (newcomer counted) of the first who would be late by it; None: it fits.

        The request at place `without` is left out.
        """
        ends = self._untouched()
        start = ends[place - 1][1] if place else self.free_at
        gone = 0.0 if without is None else ends[without][1] - (
            ends[without - 1][1] if without else self.free_at
        )  # fmt: skip
        self._seat(newcomer, start - gone if without is not None and without < place else start)
        newcomer.start_deviation = self._step * sqrt(self._variance(place, without))
        if test.late(newcomer):
            return place
        return self._first_late(place, newcomer, test, without, gone)

    def _first_late(
        self, place: int, newcomer: Item, test: Lateness, without: int | None, gone: float
    ) -> int | None:
        own = self._base + self._per_token * newcomer.prompt_tokens
        own += self._step * (newcomer.output_tokens - 1)
        which = 1 if test.completes else 0
        ends, spare = self._untouched(), 0.0
        variance = self._variance(place, without) + newcomer.variance
        for index in range(place, len(ends)):
            shift = own - gone if without is not None and without < index else own
            if index == without:
                continue
            if variance or self._queue[index].length is not None:
                variance += self._queue[index].uncertainty
                spare = test.deviations * self._step * sqrt(variance)
            if shift <= _EPSILON:
                continue
            if test.misses(ends[index][which] + shift + spare, self._queue[index].request.deadline):
                return index + 1
        return None

    def _variance(self, place: int, without: int | None) -> float:
        """Variance of the tokens ahead of `place`, the running request's included."""
        if not self._running and not self._ahead.whole_variance:
            return 0.0
        ahead = [t.uncertainty for i, t in enumerate(self._queue[:place]) if i != without]
        return self._running + sum(ahead)

    def _untouched(self) -> list[tuple[float, float]]:
        """First token and end of everybody in the queue, if nobody joins."""
        if self._ends is None:
            base, per_token, step = self._base, self._per_token, self._step
            self._ends, time = [], self.free_at
            for ticket in self._queue:
                request = ticket.request
                first = time + base + per_token * request.prompt_tokens
                time = first + step * (ticket.expected_tokens - 1)
                self._ends.append((first, time))
        return self._ends

    def _seat(self, item: Item, start: float) -> None:
        item.start = start
        item.first_token = start + self._base + self._per_token * item.prompt_tokens
        item.end = item.first_token + self._step * (item.output_tokens - 1)


def _free_at(pod: Pod, running: Ticket, step: float, now: float) -> float:
    """When the only resident of `pod` ends: what `Track` says of it, without one."""
    generated = running.generated
    if generated:
        steps = running.remaining - (pod.step_due > 0)
        if not steps:
            return max(pod.step_due, now)
        # An overdue step may end at any moment, but not in the past.
        begin = now - step
        if begin < pod.step_started:
            begin = pod.step_started
        return begin + steps * step
    first = running.prefill_end if now < running.prefill_end else now
    return first + (running.remaining - 1) * step
