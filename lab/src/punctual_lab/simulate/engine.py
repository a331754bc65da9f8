"""One pod's engine on virtual time: slots, prefill between steps, one token a step for everybody.

At each boundary the engine takes up a waiting request if a slot is free (its prefill runs alone
and yields its first token), else it makes one decode step for all that run, else it rests. The
same schedule as the model server's loop.

Steps between two changes of the batch all take the same time, so they are one *stretch*: its end
is an event, the boundaries inside it are arithmetic (`progress` tells how many have passed). With
noise each step has its own time, and a stretch is one step.
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
    last_step: int = 0
    """Step count of the engine at which its last token comes."""


class Engine(Generic[K]):
    """A pod with the true service model; requests are known by the keys they are submitted with.

    `noise` gives the factor on each prefill and each step; None: exactly the model.
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
        self._begun = 0.0
        self._step = 0.0
        self._steps = 0
        self._told = 0
        self._made = 0

    @property
    def running(self) -> list[K]:
        """Keys of the requests that decode."""
        return list(self._running)

    @property
    def load(self) -> int:
        """Requests on the pod, running or waiting."""
        return len(self._waiting) + len(self._running) + (self._prefilling is not None)

    def submit(self, key: K, prompt_tokens: int, output_tokens: int, now: float) -> None:
        """Hand in a request that will make exactly `output_tokens` tokens."""
        self._waiting.append(_Job(key, prompt_tokens, max(output_tokens, 1)))
        if self._between:
            return
        if self.ends == NEVER:
            self._begin(now)
        elif len(self._running) < self.model.slots:
            self._cut(now)

    def cancel(self, key: K, now: float) -> None:
        """Drop a request: a waiting one at once, a running one before the next step."""
        self._waiting = deque(job for job in self._waiting if job.key != key)
        if self._prefilling is not None and self._prefilling.key == key:
            self._prefilling.tokens = 0
        elif key in self._running:
            self._cut(now)
            del self._running[key]

    def set_slow(self, factor: float, now: float) -> None:
        """Change the speed from the next operation on; tell the progress so far before."""
        self._cut(now)
        self.slow = factor

    def progress(self, now: float) -> tuple[float, int]:
        """The steps since the last call for which `advance` has not told: when the last one ended,
        and how many (each running request made as many tokens).
        """
        if self._step == 0.0:
            return now, 0
        done = min(int((now - self._begun) / self._step + _SAME), self._steps - 1)
        fresh, self._told = done - self._told, max(done, self._told)
        return min(self._begun + done * self._step, now), fresh

    def advance(self) -> list[tuple[K, int, bool]]:
        """End the operation under way at `ends`: key, new tokens, whether the last is among them.

        Then react to the tokens, and call `resume`.
        """
        self._between = True
        self.busy_seconds += self.ends - self._begun
        if self._prefilling is not None:
            job, self._prefilling = self._prefilling, None
            return [(job.key, 1, self._first_token(job))] if job.tokens else []
        fresh = self._steps - self._told
        self._made = made = self._made + self._steps
        told = [(job.key, fresh, job.last_step == made) for job in self._running.values()]
        for key, _, last in told:
            if last:
                del self._running[key]
        self._step, self._steps, self._told = 0.0, 0, 0
        return told

    def resume(self) -> None:
        """Begin the next operation, after the driver has reacted to the last one's tokens."""
        now, self.ends, self._between = self.ends, NEVER, False
        self._begin(now)

    def _first_token(self, job: _Job[K]) -> bool:
        if job.tokens == 1:
            return True
        job.last_step = self._made + job.tokens - 1
        self._running[job.key] = job
        return False

    def _begin(self, now: float) -> None:
        if self._waiting and len(self._running) < self.model.slots:
            self._prefilling = job = self._waiting.popleft()
            seconds = self.model.prefill(job.prompt_tokens) * self._factor()
        elif self._running:
            self._step = self.model.step(len(self._running)) * self._factor()
            self._steps = 1 if self._noise is not None else self._until_next_last()
            seconds = self._step * self._steps
        else:
            return
        self._begun, self.ends = now, now + seconds

    def _until_next_last(self) -> int:
        return min(job.last_step for job in self._running.values()) - self._made

    def _factor(self) -> float:
        return self.slow if self._noise is None else self.slow * self._noise()

    def _cut(self, now: float) -> None:
        """End the stretch at the next boundary, where the batch may change."""
        if self._step == 0.0 or self._between:
            return
        done = int((now - self._begun) / self._step + _SAME)
        if done + 1 < self._steps:
            self._steps = done + 1
            self.ends = self._begun + self._steps * self._step
