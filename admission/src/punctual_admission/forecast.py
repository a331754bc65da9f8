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
from heapq import heapify, heappop, heappush, heapreplace
from math import hypot, sqrt
from statistics import NormalDist

from punctual_admission.company import Company
from punctual_admission.line import Ahead, Line
from punctual_admission.output_length import OutputLength
from punctual_admission.policy import Objective
from punctual_admission.pool import Pod
from punctual_admission.ticket import Ticket
from punctual_admission.track import NEVER, QUEUED, Item, Track

EPSILON = 1e-9
"""Seconds by which sums of floats may differ."""
ALTERNATIVES = 4
"""How many pods with a free slot are tried before a newcomer is refused."""


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
        return self.objective is Objective.COMPLETION

    def due(self, item: Item) -> float:
        """The predicted time that the deadline is about."""
        return item.end if self.objective is Objective.COMPLETION else item.first_token

    def late(self, item: Item) -> bool:
        """Whether the promise does not hold."""
        if item.length is not None:
            return self.chance(item, item.length, item.end) < self.certainty
        return self.misses(self.due(item), item.deadline)

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


def item_of(ticket: Ticket) -> Item:
    """A queued ticket as the forecast sees it."""
    request, length = ticket.request, ticket.length
    if length is None:
        return Item(request.prompt_tokens, request.output_tokens, request.deadline)
    return Item(request.prompt_tokens, length.mean, request.deadline, variance=length.variance)


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
        self._start = [Track(index, pod, now) for index, pod in enumerate(pods)]
        self._queue = queue
        self._walked: tuple[list[Item], list[Track]] | None = None
        self._untouched: list[float] | None = None
        self._line: Line | None = None
        self._company: Company | None = None
        self._pods = pods
        if len(pods) == 1 and pods[0].slots == 1 and not self._start[0].has_free_slot:
            running = sum([ticket.uncertainty for ticket in pods[0].residents.values()])
            self._line = Line(self._start[0], queue, ahead or Ahead.of(queue), now, running)

    def next_end(self) -> float:
        """When the next running request ends; infinite when none runs."""
        return min((track.next_end() for track in self._start), default=NEVER)

    def ends(self) -> list[float]:
        """Predicted end of each queued request, in queue order."""
        items, tail = self._walk()
        for track in tail:
            track.copy().drain()
        return [item.end for item in items]

    def append(self, newcomer: Item, test: Lateness) -> Trial:
        """Try `newcomer` at the tail of the queue; its times are filled in either way."""
        if self._line is not None:
            return Trial(self._line.append(newcomer, test), self._start[0].pod_id)
        candidates = _candidates(self._walk()[1], newcomer, self.now)
        waits = bool(self._queue) or not candidates[0].is_free(self.now)
        if waits and newcomer.length is not None:
            newcomer.start_deviation = self._deviation(self._variance(self._walk()[0]))
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
        ahead = [item_of(t) for index, t in enumerate(self._queue[:place]) if index != without]
        tracks = [track.copy() for track in self._start]
        walk(tracks, [*ahead, newcomer], self.now)
        if newcomer.length is not None:
            newcomer.start_deviation = self._deviation(self._variance(ahead))
        if self._is_late_without_followers(tracks, newcomer, test):
            return Trial(fits=False, first_late=len(ahead))
        behind = [
            item_of(t) for index, t in enumerate(self._queue[place:], place) if index != without
        ]
        walk(tracks, behind, self.now, QUEUED + len(ahead) + 1)
        for track in tracks:
            track.drain()
        return self._judge(place, [*ahead, newcomer, *behind], newcomer, test, without)

    def _is_late_without_followers(
        self, tracks: Sequence[Track], newcomer: Item, test: Lateness
    ) -> bool:
        """Whether the newcomer is late even if nobody followed: followers only make it later."""
        for track in tracks:
            track.copy().drain()
        return test.late(newcomer) or self._crowded_out(newcomer, self._start[0], test)

    def _judge(
        self, place: int, order: Sequence[Item], newcomer: Item, test: Lateness, without: int | None
    ) -> Trial:
        """Whether everybody in `order`, and everybody who runs, is on time, or late anyway."""
        spares = self._spares(order, test)
        dues = [test.due(item) for item in order]
        running = [(test.due(item), item.deadline) for item in self._residents()]
        late = [
            index
            for index, (item, due, spare) in enumerate(zip(order, dues, spares, strict=True))
            if (test.late(item) if item is newcomer else test.misses(due + spare, item.deadline))
        ]
        late_running = [
            index for index, (due, deadline) in enumerate(running) if test.misses(due, deadline)
        ]
        if not late and not late_running:
            return Trial(fits=True)
        queue, residents = self._ends_untouched(test)
        limits = [*queue[:place], -NEVER, *queue[place:]]
        if without is not None:
            del limits[without + (without >= place)]
        for index in late:
            if dues[index] > limits[index] + EPSILON:
                return Trial(fits=False, first_late=index)
        worse = any(running[index][0] > residents[index] + EPSILON for index in late_running)
        return Trial(fits=not worse)

    def _ends_untouched(self, test: Lateness) -> tuple[list[float], list[float]]:
        """What is due when, for the queue and for the residents, if nobody joins."""
        if self._untouched is None:
            # Walked anew: a trial has overwritten the times of the running ones.
            items = [item_of(ticket) for ticket in self._queue]
            tracks = [track.copy() for track in self._start]
            walk(tracks, items, self.now)
            for track in tracks:
                track.drain()
            self._untouched = [test.due(item) for item in (*items, *self._residents())]
        waiting = len(self._queue)
        return self._untouched[:waiting], self._untouched[waiting:]

    def _walk(self) -> tuple[list[Item], list[Track]]:
        """The queue with its predicted starts, and the pods behind the start of the last one."""
        if self._walked is None:
            items = [item_of(ticket) for ticket in self._queue]
            tail = [track.copy() for track in self._start]
            walk(tail, items, self.now)
            self._walked = items, tail
        return self._walked

    def _crowded_out(self, newcomer: Item, track: Track, test: Lateness) -> bool:
        """Whether the promise would not hold in a pod that stays full."""
        if not test.completes:
            return False
        if self._company is None:
            waiting = list(self._queue)
            running = [t for pod in self._pods for t in pod.residents.values()]
            self._company = Company.of(waiting or running)
        return test.crowded_out(newcomer, self._company.crowded_end(newcomer, track))

    def _variance(self, ahead: Sequence[Item]) -> float:
        """Variance of the tokens still to come of those who run and of those ahead."""
        running = [t.uncertainty for pod in self._pods for t in pod.residents.values()]
        return sum(running) + sum([item.variance for item in ahead])

    def _deviation(self, variance: float) -> float:
        """Seconds of standard deviation that a variance of tokens ahead gives to a start."""
        slots = sum([track.slots for track in self._start])
        return max(track.steps[-1] for track in self._start) * sqrt(variance) / slots

    def _spares(self, order: Sequence[Item], test: Lateness) -> list[float]:
        """Seconds that each in `order` needs beyond its mean end, for lengths not known."""
        variance = self._variance(())
        if not variance and not any(item.variance for item in order):
            return [0.0] * len(order)
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
    while waiting < len(items) and any(track.is_free(now) for track in tracks):
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
    heap = [(track.available_at(now), track.index, track) for track in tracks]
    heapify(heap)
    for item in items:
        sequence += 1
        when, index, track = heap[0]
        ends = track.ends
        if item.output_tokens <= 1 or track.held or len(ends) < track.slots:
            track.seat(item, when, sequence)
            heapreplace(heap, (track.available_at(when), index, track))
            continue
        track.virtual = last = ends[0][0]
        heappop(ends)[2].end = when
        while ends and ends[0][0] == last:
            heappop(ends)[2].end = when
        item.start = when
        time = when + track.prefill_base + track.prefill_token * item.prompt_tokens
        item.first_token = track.time = time
        heappush(ends, (last + item.output_tokens - 1, sequence, item))
        track.free_at = when
        if len(ends) == track.slots:
            when = time + (ends[0][0] - last) * track.steps[-1]
        heapreplace(heap, (when, index, track))
