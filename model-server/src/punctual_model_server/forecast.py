"""When will each request of this pod finish, and may one more be started? (event simulation)

Model. At most S requests are active. A waiting request, first come first served, takes a free slot
and is read alone for `base + per_token * P` seconds while everybody waits; that gives its first
token. One step then takes T(B) seconds with B active requests and gives each one token. Between two
ends of requests B does not change, so the simulation jumps from end to end: n requests cost
O(n log n). All times are multiplied by the measured speed ratio.

Last word. A gateway decides on state that may be 200 ms old, and several gateways may decide at
once; the pod itself sees every request. It refuses, unstarted, a newcomer that would end after its
deadline, and one that would make a resident late that is on time without it. Of the step or prefill
under way only what has been observed is taken as done (`under_way`).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from punctual_model_server.engine.protocol import Calibration


@dataclass(frozen=True, slots=True)
class Work:
    """One request as the forecast sees it.

    `tokens_left` counts the tokens still to come (at least 1); `prompt_tokens` is 0 once it has
    been read. `deadline` is seconds from now, for the end or, with `first_token_only`, for the
    first token.
    """

    prompt_tokens: int
    tokens_left: int
    deadline: float | None = None
    first_token_only: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """Seconds from now until a request's next first token (0 when it has one) and until its end."""

    first: float
    end: float

    def meets(self, work: Work) -> bool:
        """Return whether this keeps the deadline of `work`."""
        if work.deadline is None:
            return True
        return (self.first if work.first_token_only else self.end) <= work.deadline


@dataclass(frozen=True, slots=True)
class LastWord:
    """Whether a newcomer may be started, its predicted seconds, and whom it would make late."""

    accepted: bool
    predicted: float
    resident_made_late: bool = False


def forecast(
    model: Calibration,
    ratio: float,
    running: Sequence[Work],
    waiting: Sequence[Work],
    done: float = 0.0,
) -> list[Finish]:
    """Return the finish of each running, then each waiting request, in the order given.

    `done` is what the engine has already spent on its present step or prefill (see `under_way`).
    """
    slots = len(model.step_seconds)
    now = -done
    finishes = [Finish(0.0, 0.0)] * (len(running) + len(waiting))
    steps = 0
    active = [(work.tokens_left, index) for index, work in enumerate(running)]
    heapq.heapify(active)
    queue = iter(enumerate(waiting, len(running)))
    upcoming = next(queue, None)
    while active or upcoming:
        while upcoming and len(active) < slots:
            index, work = upcoming
            now += model.prefill(work.prompt_tokens)
            finishes[index] = _finish(now, now, ratio)
            if work.tokens_left > 1:
                heapq.heappush(active, (steps + work.tokens_left - 1, index))
            upcoming = next(queue, None)
        if active:
            now += (active[0][0] - steps) * model.step(len(active))
            steps = active[0][0]
        while active and active[0][0] == steps:
            _, index = heapq.heappop(active)
            finishes[index] = Finish(finishes[index].first, max(now, 0.0) * ratio)
    return finishes


def under_way(
    model: Calibration,
    ratio: float,
    running: Sequence[Work],
    waiting: Sequence[Work],
    elapsed: float,
) -> float:
    """Return how much of the present step or prefill is done, in seconds at calibrated speed.

    `elapsed` is the time since the engine last finished something; what is under way can have come
    no further than its own length.
    """
    if waiting and len(running) < len(model.step_seconds):
        return min(elapsed / ratio, model.prefill(waiting[0].prompt_tokens))
    return min(elapsed / ratio, model.step(len(running))) if running else 0.0


def drain_seconds(residents: Sequence[Finish]) -> float:
    """Return the time until everything that is here now has ended."""
    return max((finish.end for finish in residents), default=0.0)


def wait_seconds(slots: int, residents: Sequence[Finish]) -> float:
    """Return the time until a request that came now would get a slot."""
    if len(residents) < slots:
        return 0.0
    return sorted(finish.end for finish in residents)[len(residents) - slots]


def work_seconds(
    model: Calibration, ratio: float, running: Sequence[Work], waiting: Sequence[Work]
) -> float:
    """Return the GPU-seconds in flight: prefills left plus each token's share of a step, T(B)/B."""
    batch = min(max(len(running) + len(waiting), 1), len(model.step_seconds))
    share = model.step(batch) / batch
    tokens = sum(w.tokens_left for w in running) + sum(w.tokens_left - 1 for w in waiting)
    return ratio * (tokens * share + sum(model.prefill(w.prompt_tokens) for w in waiting))


def last_word(
    model: Calibration,
    ratio: float,
    running: Sequence[Work],
    waiting: Sequence[Work],
    newcomer: Work,
    done: float = 0.0,
) -> LastWord:
    """Decide whether `newcomer` may join behind everything that is here."""
    after = forecast(model, ratio, running, [*waiting, newcomer], done)
    own = after[-1]
    predicted = own.first if newcomer.first_token_only else own.end
    if not own.meets(newcomer):
        return LastWord(False, predicted)
    residents = [*running, *waiting]
    late = [i for i, work in enumerate(residents) if not after[i].meets(work)]
    if late:
        before = forecast(model, ratio, running, waiting, done)
        if any(before[i].meets(residents[i]) for i in late):
            return LastWord(False, predicted, resident_made_late=True)
    return LastWord(True, predicted)


def _finish(first: float, end: float, ratio: float) -> Finish:
    return Finish(max(first, 0.0) * ratio, max(end, 0.0) * ratio)
