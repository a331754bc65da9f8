"""One pod's engine on virtual time: slots, prefill between steps, one token a step for everybody.

At each boundary the engine takes up a waiting request if a slot is free (its prefill runs alone
and yields its first token), else it makes one decode step for all that run, else it rests. The
same schedule as the model server's loop.

Steps between two changes of the batch all take the same time, so an operation is a prefill, or
none, and a *stretch* of equal steps: its end is an event, the boundaries inside are arithmetic
(`tell` says which have passed). With noise each step has its own time, and a stretch is one step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from punctual_admission.service_time import ServiceModel

NEVER = float("inf")
_SAME = 1e-9
"""Share of a step by which sums of floats may differ."""

K = TypeVar("K", bound="Hashable")


@dataclass(slots=True)
class _Job(Generic[K]):
    key: K
    prompt_tokens: int
    tokens: int
    slow: float
    last_step: int = 0
    """Step count of the engine at which its last token comes."""


class Engine(Generic[K]):
    """A pod with the true service model; requests are known by the keys they are submitted with.

    `noise` gives the factor on each prefill and each step; None: exactly the model. The driver
    calls, at the time `ends`, `tell`, `finish` and `resume` in this order.
    """

    def __init__(self, model: ServiceModel, noise: Callable[[], float] | None = None) -> None:
        self.model = model
        self.ends = NEVER
        """When the operation under way ends; infinite at rest."""
        self.busy_seconds = 0.0
        self.slow = 1.0
        """Factor on every time: 2 is half as fast. Set it with `set_slow`."""
        self._noise = noise
        self._waiting: deque[_Job[K]] = deque()
        self._running: dict[K, _Job[K]] = {}
        self._prefilling: _Job[K] | None = None
        self._between = False
        self._taken_up = 0.0
        self._begun = 0.0
        """When the prefill ends and the stretch begins."""
        self._step = 0.0
        self._steps = 0
        self._told = 0
        self._made = 0
        self._uneven = False
        """Whether a request came whose `slow` is not 1."""

    @property
    def load(self) -> int:
        """Requests on the pod, running or waiting."""
        return len(self._waiting) + len(self._running) + (self._prefilling is not None)

    def submit(
        self, key: K, prompt_tokens: int, output_tokens: int, now: float, slow: float = 1.0
    ) -> None:
        """Hand in a request that will make exactly `output_tokens` tokens.

        `slow` is a factor on its own prefill, and its part of the mean of the factors that a step
        takes: with one slot, on its whole service.
        """
        self._waiting.append(_Job(key, prompt_tokens, max(output_tokens, 1), slow))
        self._uneven = self._uneven or slow != 1.0
        if self._between:
            return
        if self.ends == NEVER:
            self._begin(now)
        elif self._seats_left():
            self._cut(now)

    def cancel(self, key: K, now: float) -> None:
        """Drop a request: a waiting one at once, a running one before the next step."""
        self._waiting = deque(job for job in self._waiting if job.key != key)
        prefilling = self._prefilling
        if prefilling is not None and prefilling.key == key:
            self._cut(now)
            prefilling.tokens = 0
        elif key in self._running:
            self._cut(now)
            del self._running[key]

    def set_slow(self, factor: float, now: float) -> None:
        """Change the speed from the next operation on."""
        self._cut(now)
        self.slow = factor

    def tell(self, now: float) -> list[tuple[float, list[K], int]]:
        """What came since the last call: when, to whom, and how many tokens each."""
        told: list[tuple[float, list[K], int]] = []
        if self.ends == NEVER:
            return told
        job = self._prefilling
        if job is not None and now >= self._begun:
            self._prefilling = None
            if job.tokens:
                told.append((self._begun, [job.key], 1))
                self._running[job.key] = job
        if self._steps and now > self._begun:
            ended = now >= self.ends
            done = self._steps if ended else self._passed(now)
            if done > self._told:
                when = now if ended else self._begun + done * self._step
                told.append((when, [*self._running], done - self._told))
                self._told = done
        return told

    def finish(self) -> list[K]:
        """End the operation; returns whose last token came with it. React, then `resume`."""
        self._between = True
        self.busy_seconds += self.ends - self._taken_up
        self._made = made = self._made + self._steps
        ended = [job.key for job in self._running.values() if job.last_step == made]
        for key in ended:
            del self._running[key]
        return ended

    def resume(self) -> None:
        """Begin the next operation, after the driver has reacted to the last one's tokens."""
        now, self.ends, self._between = self.ends, NEVER, False
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._taken_up = begun = now
        batch = len(self._running)
        if self._waiting and batch < self.model.slots:
            self._prefilling = job = self._waiting.popleft()
            begun += self.model.prefill(job.prompt_tokens) * self._factor() * job.slow
            job.last_step = self._made + job.tokens - 1
            batch += 1
        elif not batch:
            return
        self._begun, self._told, self._steps = begun, 0, self._stretch()
        if self._steps:
            self._step = self.model.step(batch) * self._factor()
            if self._uneven:
                self._step *= self._mean_slow()
        self.ends = begun + self._steps * self._step

    def _stretch(self) -> int:
        """Steps until the batch changes, as far as is known."""
        if self._waiting and self._seats_left():
            return 0
        prefilling = self._prefilling
        if prefilling is not None and not self._running:
            last = prefilling.last_step
        else:
            lasts = [job.last_step for job in self._running.values()]
            if prefilling is not None:
                lasts.append(prefilling.last_step)
            last = min(lasts)
        steps = last - self._made
        return min(steps, 1) if self._noise is not None else steps

    def _seats_left(self) -> bool:
        return len(self._running) + (self._prefilling is not None) < self.model.slots

    def _factor(self) -> float:
        return self.slow if self._noise is None else self.slow * self._noise()

    def _mean_slow(self) -> float:
        jobs = [*self._running.values()]
        if self._prefilling is not None:
            jobs.append(self._prefilling)
        return sum([job.slow for job in jobs]) / len(jobs)

    def _passed(self, now: float) -> int:
        """Boundaries of the stretch that have passed, its end left out."""
        if now <= self._begun:
            return 0
        passed, last = int((now - self._begun) / self._step + _SAME), self._steps - 1
        return passed if passed < last else last

    def _cut(self, now: float) -> None:
        """End the operation at the next boundary, where the batch may change."""
        if self._between or not self._steps:
            return
        steps = 0 if now < self._begun else self._passed(now)
        if now - self._begun - steps * self._step > _SAME:
            steps += 1
        if steps < self._steps:
            self._steps = steps
            self.ends = max(self._begun + steps * self._step, now)
