"""One pod on its way through the forecast: wall time, steps made, residents by last step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from punctual_admission.output_length import OutputLength
from punctual_admission.pool import Foreign, Pod
from punctual_admission.ticket import Ticket

NEVER = float("inf")
_SAME = 1e-9
"""Seconds by which two sums of floats may differ and mean the same moment."""
QUEUED = 1 << 60
"""First sequence of those who wait: behind all residents where steps are equal."""
_NEWEST = 1 << 61
"""Sequence of a newcomer: behind all others where steps are equal."""


@dataclass(slots=True, eq=False)
class Item:
    """A request as the forecast sees it; times (monotonic seconds) are filled in by the walk."""

    prompt_tokens: int
    output_tokens: float
    deadline: float
    length: OutputLength | None = None
    """The newcomer's, if it was learned; then `output_tokens` is its mean."""
    variance: float = 0.0
    """Of the output tokens."""
    start_deviation: float = 0.0
    """Standard deviation of the start, in seconds, from the lengths ahead."""
    start: float = NEVER
    """When an engine takes it up."""
    first_token: float = NEVER
    end: float = NEVER
    """When its last token comes."""


def item_of(ticket: Ticket) -> Item:
    """The ticket as the forecast sees it: one object, whose times each walk overwrites."""
    item = ticket.item
    if item is None:
        request, length = ticket.request, ticket.length
        if length is None:
            item = Item(request.prompt_tokens, request.output_tokens, request.deadline)
        else:
            item = Item(request.prompt_tokens, length.mean, request.deadline)
            item.variance = length.variance
            if length.scouts:
                item.deadline = NEVER  # nobody is refused for its sake
        ticket.item = item
    return item


class Track:
    """State of one pod at a moment of the forecast.

    `ends` is a heap of (step count of the last token, sequence, item); `time` is the wall time at
    which `virtual` steps have been made; `free_at` is since when a slot has been free, if one is;
    `held` are the ends (ascending) of those who end before any further step; `uncertainty` is the
    variance of the tokens that its residents still make.
    """

    __slots__ = (
        "ends", "free_at", "full_step", "held", "index", "pod_id", "prefill_base", "prefill_token",
        "slots", "steps", "time", "uncertainty", "virtual",
    )  # fmt: skip

    def __init__(self, index: int, pod: Pod, now: float) -> None:
        engine = pod.engine
        self.index = index
        self.pod_id = pod.id
        self.slots = engine.slots
        self.steps = engine.step_seconds
        self.full_step = self.steps[-1]
        self.prefill_base = engine.prefill_base
        self.prefill_token = engine.prefill_per_token
        self.virtual = 0.0
        self.uncertainty = 0.0
        self.time = _anchor(pod, now)
        self.free_at = pod.paused_until
        self.held: list[float] = []
        self.ends: list[tuple[float, int, Item]] = []
        self._seat_residents(pod, now)

    def _seat_residents(self, pod: Pod, now: float) -> None:
        ends, due = self.ends, pod.step_due > 0
        for ticket in pod.residents.values():
            item, first = ticket.item or item_of(ticket), ticket.first_token
            generated = ticket.generated
            if first is None:
                first = ticket.prefill_end
                if first < now:
                    first = now
            item.first_token = first
            if ticket.length is None:
                steps: float = ticket.request.output_tokens - generated
                if steps < 1:
                    steps = 1
            else:
                steps = ticket.remaining
                self.uncertainty += ticket.uncertainty
            # A newcomer's first token, or the token of a step under way, comes before `time`.
            if due or not generated:
                steps -= 1
            if steps:
                ends.append((steps, ticket.sequence, item))
                continue
            item.end = max(pod.step_due, now) if generated else item.first_token
            self.held.append(item.end)
        if pod.foreign:
            self.ends.extend(
                (float(f.remaining), -1 - number, Item(0, f.remaining, NEVER))
                for number, f in enumerate(pod.foreign)
                if f.unstarted_prompt_tokens is None
            )
        heapify(ends)
        self.held.sort()
        while len(ends) > self.slots:
            self.complete_next()
        if pod.foreign:
            self._seat_waiting([f for f in pod.foreign if f.unstarted_prompt_tokens is not None])

    def _seat_waiting(self, waiting: Sequence[Foreign]) -> None:
        """Requests of other gateways that have no slot yet."""
        for number, foreign in enumerate(waiting):
            item = Item(foreign.unstarted_prompt_tokens or 0, foreign.remaining, NEVER)
            if len(self.ends) >= self.slots:
                self.free_at = max(self.free_at, self.next_end())
                self.complete_next()
            self.take_up(item, self.time, -1000 - number)

    def copy(self) -> Track:
        """The same state, apart; items are shared, so a walk on the copy overwrites their times."""
        twin = object.__new__(Track)
        twin.index, twin.pod_id, twin.slots = self.index, self.pod_id, self.slots
        twin.steps, twin.full_step = self.steps, self.full_step
        twin.prefill_base = self.prefill_base
        twin.prefill_token, twin.virtual = self.prefill_token, self.virtual
        twin.time, twin.free_at, twin.uncertainty = self.time, self.free_at, self.uncertainty
        twin.ends, twin.held = self.ends.copy(), self.held.copy()
        return twin

    def step(self) -> float:
        """Seconds of one step with the present residents; 0 when nothing runs."""
        count = len(self.ends)
        if count >= self.slots:
            return self.full_step
        return self.steps[count - 1] if count else 0.0

    def next_end(self) -> float:
        """Wall time of the next end; infinite when nothing runs."""
        if not self.ends:
            return NEVER
        return self.time + (self.ends[0][0] - self.virtual) * self.step()

    def next_to_go(self) -> float:
        """When the next of those who run now ends; infinite when nothing runs."""
        return self.held[0] if self.held else self.next_end()

    @property
    def has_free_slot(self) -> bool:
        """Whether nobody holds one of the slots; where an end is overdue, somebody does."""
        return len(self.ends) + len(self.held) < self.slots

    @property
    def is_full(self) -> bool:
        """Whether every slot is held by somebody who ends with a step to come."""
        return len(self.ends) >= self.slots and not self.held

    def is_free(self, now: float) -> bool:
        """Whether a slot can be taken now."""
        return self.has_free_slot and self.free_at <= now

    def available_at(self, now: float) -> float:
        """From when on the pod can take up one more request."""
        if self.has_free_slot:
            return self.free_at if self.free_at > now else now
        return max(self.held[0], now) if self.held else self.next_end()

    def rough_end(self, item: Item, now: float) -> float:
        """End of `item` on a slot that is free, if the batch stays as it is then."""
        step, begin = self.step(), self.time
        if now > begin:
            begin = begin - (begin - now + _SAME) // step * step if step else now
        prefill = self.prefill_base + self.prefill_token * item.prompt_tokens
        return (
            begin
            + prefill
            + (item.output_tokens - 1) * self.steps[min(len(self.ends), self.slots - 1)]
        )

    def complete_next(self) -> None:
        """Go forward to the next end and free that slot."""
        self.time = self.next_end()
        self.virtual, _, item = heappop(self.ends)
        item.end = self.time
        while self.ends and self.ends[0][0] == self.virtual:
            heappop(self.ends)[2].end = self.time
        self.free_at = max(self.free_at, self.time)

    def take_up(self, item: Item, when: float, sequence: int) -> None:
        """Seat `item` at `when`, the end of a step."""
        if not self.ends:
            self.time = max(self.time, when)
        item.start = self.time
        self.time += self.prefill_base + self.prefill_token * item.prompt_tokens
        item.first_token = self.time
        if item.output_tokens <= 1:
            item.end = self.time
            self.held.append(self.time)
            return
        heappush(self.ends, (self.virtual + item.output_tokens - 1, sequence, item))

    def seat(self, item: Item, now: float, sequence: int = _NEWEST) -> None:
        """Seat `item` as soon as the pod can take it up."""
        when = self.available_at(now)
        if self.has_free_slot:
            self._to_boundary(when)
        elif self.held:
            self.free_at = max(self.free_at, self.held.pop(0))
        else:
            self.complete_next()
        self.take_up(item, when, sequence)

    def _to_boundary(self, now: float) -> None:
        """Go forward to the end of the step under way at `now`."""
        step = self.step()
        if now <= self.time or step == 0.0:
            return
        steps = min(-((self.time - now + _SAME) // step), self.ends[0][0] - self.virtual)
        self.virtual += steps
        self.time += steps * step

    def drain(self) -> None:
        """Let all residents end, nobody joining."""
        ends, steps = self.ends, self.steps
        time, virtual, slots = self.time, self.virtual, self.slots
        while ends:
            count = len(ends)
            last, _, item = heappop(ends)
            time += (last - virtual) * (steps[count - 1] if count <= slots else steps[-1])
            virtual = last
            item.end = time
        self.time, self.virtual = time, virtual


def joined(ticket: Ticket, pod: Pod, now: float) -> Item:
    """The ticket as it would run if it joined the pod now."""
    request = ticket.request
    item = Item(request.prompt_tokens, ticket.expected_tokens, request.deadline, ticket.length)
    if not pod.residents and not pod.foreign:
        engine = pod.engine
        item.start = pod.boundary(now)
        item.first_token = item.start + engine.prefill(item.prompt_tokens)
        item.end = item.first_token + (item.output_tokens - 1) * engine.step_seconds[0]
        return item
    track = Track(0, pod, now)
    track.seat(item, now)
    track.drain()
    return item


def _anchor(pod: Pod, now: float) -> float:
    """Wall time at which the pod's next step begins, or at which the present one began."""
    joining = [t.prefill_end for t in pod.residents.values() if not t.generated]
    if joining:
        return max(*joining, now)
    if not pod.residents and not pod.foreign:
        return max(now, pod.busy_until)
    step = pod.engine.step(len(pod.residents) + len(pod.foreign))
    # An overdue step may end at any moment, but not in the past.
    return max(pod.step_started, now - step)
