"""When every admitted request will end, if nothing else arrives.

Model. A pod is an engine with S slots (see `service_time`). Its progress is counted in steps: a
resident with r tokens to come ends r steps from now, so a pod's residents are a heap of step
counts at which they end, and the wall time of the next end is

    t + (v_end - v) * T(B)

with t the wall time at which the pod has made v steps, and B its residents. A newcomer that is
taken up adds its prefill to t, which delays every resident of the pod, and ends n - 1 steps
later. While anything waits every slot is busy, so B = S and the k-th in the queue starts at the
k-th end. This is list scheduling over the slots of all pods, by events: no fluid approximation,
and exact when the model is.

Regimes
- A queue exists: its head starts at the earliest end of all pods (equal: the pod listed first).
- Who has to wait is promised its end in a full pod, joiners behind it included: see `company`.
- A slot is free: the newcomer starts at the end of the step under way, on the pod with the earliest
  predicted end, and makes the batch larger, so the residents' ends are computed again and tested.

Guards
- A step that takes longer than the model says never ends in the past.
- A resident that outlives its estimate has one token left, never none.
- Whoever would be late without the newcomer as well does not count against it.

Cost. `Forecast` walks the queue when it is asked, once, O(n log m) for n waiting and m pods, and
keeps the state behind the start of the last one; `append` then tests a newcomer at the tail in
O(m + S log S). A newcomer that goes ahead of others (earliest deadline first) walks the queue
again: `insert`. One busy slot needs no walk at all: see `line`.

Sources: list scheduling and its bound (work ahead) / m + own service, Graham 1969; the event form
is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heappush, heappushpop, heapreplace
from math import hypot, sqrt
from statistics import NormalDist

from punctual_admission.company import Company
from punctual_admission.line import Ahead, Line
from punctual_admission.output_length import OutputLength
from punctual_admission.policy import Objective
from punctual_admission.pool import Pod
from punctual_admission.ticket import Ticket
from punctual_admission.track import NEVER, QUEUED, Item, Track, item_of

EPSILON = 1e-9
"""Seconds by which sums of floats may differ."""
ALTERNATIVES = 4
"""How many pods with a free slot are tried before a newcomer is refused."""
_COMPLETION = Objective.COMPLETION


@dataclass(slots=True)  # not frozen, as `Trial`: made for each decision
class Lateness:
    """The test of one end against its deadline, stretched by the safety margin."""

    now: float
    margin: float
    objective: Objective
    certainty: float = 0.9
    """Probability with which a length that is not known must fit."""

    @property
    def deviations(self) -> float:
        """`certainty` in standard deviations of a normal distribution."""
        return _deviations(self.certainty)

    @property
    def completes(self) -> bool:
        """Whether the deadline is about the end of the answer, not its first token."""
        return self.objective is _COMPLETION

    def due(self, item: Item) -> float:
        """The predicted time that the deadline is about."""
        return item.end if self.objective is _COMPLETION else item.first_token

    def late(self, item: Item) -> bool:
        """Whether the promise does not hold."""
        if item.length is not None:
            return self.chance(item, item.length, item.end) < self.certainty
        due = item.end if self.objective is _COMPLETION else item.first_token
        return self.now + (due - self.now) * self.margin > item.deadline + EPSILON

    def crowded_out(self, item: Item, end: float) -> bool:
        """Whether the promise of a completion does not hold if the item ends at `end`."""
        if item.length is not None:
            return self.chance(item, item.length, end) < self.certainty
        return self.misses(end, item.deadline)

    def chance(self, item: Item, length: OutputLength, end: float) -> float:
        """Probability that the deadline is met when an answer of mean length ends at `end`."""
        latest = self.now + (item.deadline + EPSILON - self.now) / self.margin
        seconds = latest - item.first_token
        if not self.completes:
            return OutputLength.of((0.0,)).chance(seconds, item.start_deviation)
        pace = max((end - item.first_token) / max(item.output_tokens - 1, EPSILON), EPSILON)
        return length.chance(1 + seconds / pace, item.start_deviation / pace)

    def places(self, items: Sequence[Item]) -> list[int]:
        """The places of those of known length who are late: `late`, written out for a queue."""
        now, margin = self.now, self.margin
        if self.completes:
            return [
                place
                for place, item in enumerate(items)
                if now + (item.end - now) * margin > item.deadline + EPSILON
            ]
        return [
            place
            for place, item in enumerate(items)
            if now + (item.first_token - now) * margin > item.deadline + EPSILON
        ]

    def misses(self, due: float, deadline: float) -> bool:
        """Whether what is due at `due` passes `deadline`, stretched by the margin."""
        return self.now + (due - self.now) * self.margin > deadline + EPSILON


@dataclass(slots=True)
class Trial:
    """What a newcomer would do to the queue."""

    fits: bool
    pod_id: str | None = None
    """The pod that takes the newcomer up; known for a newcomer at the tail."""
    first_late: int | None = None
    """Place in the queue (newcomer included) of the first that is late; None: a running request."""


@cache
def _deviations(certainty: float) -> float:
    return NormalDist().inv_cdf(certainty)


class Forecast:
    """The walk through residents and queue; ask it about one newcomer at a time."""

    def __init__(
        self,
        pods: Sequence[Pod],
        queue: Sequence[Ticket],
        now: float,
        ahead: Ahead | None = None,
    ) -> None:
        """Forecast `queue`, which `ahead` sums up if given; valid until pods or queue change."""
        self.now = now
        self._pods = pods
        self._queue = queue
        self._ahead = ahead
        self._tracks: list[Track] | None = None
        self._items: list[Item] | None = None
        self._tail: list[Track] | None = None
        self._untouched: dict[int, float] | None = None
        self._company: Company | None = None
        self._line = Line.before(pods[0], queue, ahead, now) if len(pods) == 1 else None

    @property
    def _start(self) -> list[Track]:
        """The pods as they are now."""
        if self._tracks is None:
            now = self.now
            self._tracks = [Track(index, pod, now) for index, pod in enumerate(self._pods)]
        return self._tracks

    @property
    def _order(self) -> list[Item]:
        """The queue."""
        if self._items is None:
            self._items = [ticket.item or item_of(ticket) for ticket in self._queue]
        return self._items

    def next_end(self) -> float:
        """When the next running request ends; infinite when none runs."""
        if self._line is not None:
            return self._line.free_at
        return min([track.next_to_go() for track in self._start], default=NEVER)

    def ends(self) -> list[float]:
        """Predicted end of each queued request, in queue order."""
        tail = [track.copy() for track in self._start]
        walk(tail, self._order, self.now)
        for track in tail:
            track.drain()
        return [item.end for item in self._order]

    def append(self, newcomer: Item, test: Lateness) -> Trial:
        """Try `newcomer` at the tail of the queue; its times are filled in either way."""
        if self._line is not None:
            fits = self._line.append(newcomer, test)
            return Trial(fits, self._pods[0].id, None if fits else len(self._queue))
        candidates = _candidates(self._walk(), newcomer, self.now)
        waits = bool(self._queue) or not candidates[0].is_free(self.now)
        if waits and newcomer.length is not None:
            newcomer.start_deviation = self._deviation(self._variance(self._order))
        for track in candidates:
            trial = _try_on(track, newcomer, self.now, test)
            if trial.fits and waits:
                trial.fits = not self._crowded_out(newcomer, track, test)
            if trial.fits:
                return trial
        # Nobody fits: the numbers to report are those of the best pod.
        return trial if len(candidates) == 1 else _try_on(candidates[0], newcomer, self.now, test)

    def insert(
        self, place: int, newcomer: Item, test: Lateness, *, without: int | None = None
    ) -> Trial:
        """Try `newcomer` ahead of `place`, with the request at place `without` left out."""
        if self._line is not None:
            late = self._line.insert(place, newcomer, test, without)
            return Trial(late is None, first_late=late)
        order = self._order.copy()
        order.insert(place, newcomer)
        if without is not None:
            del order[without + (without >= place)]
            place -= without < place
        tracks = [track.copy() for track in self._start]
        walk(tracks, order[: place + 1], self.now)
        if newcomer.length is not None:
            newcomer.start_deviation = self._deviation(self._variance(order[:place]))
        if self._is_late_without_followers(tracks, newcomer, test):
            return Trial(fits=False, first_late=place)
        # Who has ended before the newcomer begins is not touched by it.
        touched = [newcomer, *order[place + 1 :]]
        for track in tracks:
            touched += [item for _, _, item in track.ends]
        walk(tracks, order[place + 1 :], self.now, QUEUED + place + 1)
        for track in tracks:
            track.drain()
        if without is None and self._is_certain(newcomer) and not test.places(touched):
            return Trial(fits=True)
        return self._judge(order, newcomer, test)

    def _is_late_without_followers(
        self, tracks: Sequence[Track], newcomer: Item, test: Lateness
    ) -> bool:
        """Whether the newcomer is late even if nobody followed: followers only make it later."""
        if test.completes and not self._crowded_out(newcomer, self._start[0], test):
            return False  # whether it is late after all is seen when all are seated
        for track in tracks:
            if [True for _, _, item in track.ends if item is newcomer]:
                track.copy().drain()
        return test.completes or test.late(newcomer)

    def _judge(self, order: Sequence[Item], newcomer: Item, test: Lateness) -> Trial:
        """Whether everybody in `order`, and everybody who runs, is on time, or late anyway."""
        residents = self._residents()
        late = self._late(order, newcomer, test)
        late_running = [residents[place] for place in test.places(residents)]
        if not late and not late_running:
            return Trial(fits=True)
        dues = [test.due(order[index]) for index in late]
        running = [test.due(item) for item in late_running]
        untouched = self._dues_untouched(test)
        for index, due in zip(late, dues, strict=True):
            if due > untouched.get(id(order[index]), -NEVER) + EPSILON:
                return Trial(fits=False, first_late=index)
        worse = [
            item
            for item, due in zip(late_running, running, strict=True)
            if due > untouched[id(item)] + EPSILON
        ]
        return Trial(fits=not worse)

    def _late(self, order: Sequence[Item], newcomer: Item, test: Lateness) -> list[int]:
        """The places of those who are late."""
        if self._is_certain(newcomer):
            return test.places(order)
        spares = self._spares(order, self._variance(()), test)
        return [
            index
            for index, (item, spare) in enumerate(zip(order, spares, strict=True))
            if (
                test.late(item)
                if item is newcomer
                else test.misses(test.due(item) + spare, item.deadline)
            )
        ]

    def _is_certain(self, newcomer: Item) -> bool:
        """Whether all lengths are known."""
        uncertain = newcomer.length is not None or self._waiting.whole_variance
        return not uncertain and not self._variance(())

    def _dues_untouched(self, test: Lateness) -> dict[int, float]:
        """What is due when if nobody joins, by the item's id; overwrites the items' times."""
        if self._untouched is None:
            self.ends()
            items = (*self._order, *self._residents())
            self._untouched = {id(item): test.due(item) for item in items}
        return self._untouched

    def _walk(self) -> list[Track]:
        """The pods behind the start of the last one in the queue."""
        if self._tail is None:
            self._tail = [track.copy() for track in self._start]
            walk(self._tail, self._order, self.now)
        return self._tail

    @property
    def _waiting(self) -> Ahead:
        if self._ahead is None:
            self._ahead = Ahead.of(self._queue)
        return self._ahead

    def _crowded_out(self, newcomer: Item, track: Track, test: Lateness) -> bool:
        """Whether the promise would not hold in a pod that stays full."""
        if not test.completes:
            return False
        if self._company is None:
            if self._queue:
                self._company = Company.waiting(self._waiting)
            else:
                self._company = Company.of(
                    [ticket for pod in self._pods for ticket in pod.residents.values()]
                )
        return test.crowded_out(newcomer, self._company.crowded_end(newcomer, track))

    def _variance(self, ahead: Sequence[Item]) -> float:
        """Variance of the tokens still to come of those who run and of those ahead."""
        running = sum([track.uncertainty for track in self._start])
        return running + sum([item.variance for item in ahead])

    def _deviation(self, variance: float) -> float:
        """Seconds of standard deviation that a variance of tokens ahead gives to a start."""
        slots = sum([track.slots for track in self._start])
        return max(track.steps[-1] for track in self._start) * sqrt(variance) / slots

    def _spares(self, order: Sequence[Item], variance: float, test: Lateness) -> list[float]:
        """Seconds that each in `order` needs beyond its mean end, for lengths not known.

        `variance` is that of the tokens which those who run still make.
        """
        spares = []
        for item in order:
            own = self._start[0].steps[-1] * sqrt(item.variance)
            spares.append(test.deviations * hypot(self._deviation(variance), own))
            variance += item.variance
        return spares

    def _residents(self) -> list[Item]:
        return [item for track in self._start for _, _, item in track.ends]


def _candidates(tracks: Sequence[Track], item: Item, now: float) -> list[Track]:
    """The pods that may take up the next in the queue, best first.

    Pods with a slot that is free now: by earliest predicted end. None: the one that frees a slot
    first. A pod whose next end is overdue has no free slot yet.
    """
    free = [track for track in tracks if track.is_free(now)]
    if free:
        free.sort(key=lambda track: (track.rough_end(item, now), track.index))
        return free[:ALTERNATIVES]
    first = min(tracks, key=lambda track: (track.available_at(now), track.index), default=None)
    return [] if first is None else [first]


def choose(tracks: Sequence[Track], item: Item, now: float) -> Track:
    """The pod (of at least one) that takes up the next in line; the live dispatch asks here."""
    return _candidates(tracks, item, now)[0]


def _try_on(track: Track, newcomer: Item, now: float, test: Lateness) -> Trial:
    alone = track.copy()
    alone.drain()
    before = {id(item): test.due(item) for _, _, item in track.ends}
    joined = track.copy()
    joined.seat(newcomer, now)
    joined.drain()
    if test.late(newcomer):
        return Trial(fits=False, pod_id=track.pod_id)
    fits = not any(
        test.late(item) and test.due(item) > before[id(item)] + EPSILON for _, _, item in track.ends
    )
    return Trial(fits=fits, pod_id=track.pod_id)


def walk(
    tracks: Sequence[Track], items: Sequence[Item], now: float, sequence: int = QUEUED
) -> None:
    """Seat every item in order; afterwards the tracks stand behind the start of the last one.

    `sequence` orders those whose last steps are equal; a walk that goes on begins behind it.
    """
    waiting = 0
    while waiting < len(items) and [True for track in tracks if track.is_free(now)]:
        track = choose(tracks, items[waiting], now)
        track.seat(items[waiting], now, sequence + waiting)
        waiting += 1
    if not tracks or waiting == len(items):
        return
    _walk_full(tracks, items[waiting:], sequence + waiting, now)


def _walk_full(tracks: Sequence[Track], items: Sequence[Item], sequence: int, now: float) -> None:
    """Seat items while every slot is busy: each takes the next end of all pods.

    Track.complete_next and Track.take_up written out, for this loop is the cost of a decision.
    """
    heap = [(track.available_at(now), track.index, track, track.is_full) for track in tracks]
    heapify(heap)
    when, index, track, full = heappop(heap)
    for number, item in enumerate(items, sequence + 1):
        ends, tokens = track.ends, item.output_tokens
        if full and tokens > 1:
            last = ends[0][0]
            heapreplace(ends, (last + tokens - 1, number, item))[2].end = when
            item.start = when
            time = when + track.prefill_base + track.prefill_token * item.prompt_tokens
            following = ends[0][0]
            if following == last:
                full, track.free_at = False, when
                while ends[0][0] == last:
                    heappop(ends)[2].end = when
        elif tokens > 1 and not track.held and track.free_at <= track.time:
            # A neighbour ended in the same step as the one that made room before.
            item.start, last = track.time, track.virtual
            time = track.time + track.prefill_base + track.prefill_token * item.prompt_tokens
            heappush(ends, (last + tokens - 1, number, item))
            following, full = ends[0][0], len(ends) >= track.slots
        else:
            track.seat(item, when, number)
            when, full = track.available_at(when), track.is_full
            when, index, track, full = heappushpop(heap, (when, index, track, full))
            continue
        item.first_token = track.time = time
        track.virtual = last
        if full:  # else it is the first to have a slot once more
            when = time + (following - last) * track.full_step
            when, index, track, full = heappushpop(heap, (when, index, track, full))
