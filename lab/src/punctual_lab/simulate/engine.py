"""One pod's engine on virtual time: slots, prefill between steps, one token a step for everybody.

At each boundary the engine takes up a waiting request if a slot is free (its prefill runs alone
and yields its first token), else it makes one decode step for all that run, else it rests. The
same schedule as the model server's loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from punctual_admission.service_time import ServiceModel

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Token:
    """One token of one request; `last` when it ends the answer."""

    key: int
    last: bool


@dataclass(slots=True)
class _Job:
    key: int
    prompt_tokens: int
    left: int


class Engine:
    """A pod with the true service model; `noise` gives the factor on each prefill and each step."""

    def __init__(self, model: ServiceModel, noise: Callable[[], float] = lambda: 1.0) -> None:
        self.model = model
        self.busy_seconds = 0.0
        self._noise = noise
        self._waiting: deque[_Job] = deque()
        self._running: dict[int, _Job] = {}
        self._prefilling: _Job | None = None
        self._ends = NEVER

    @property
    def next_event(self) -> float:
        """When the operation under way ends; infinite at rest."""
        return self._ends

    @property
    def load(self) -> int:
        """Requests on the pod, running or waiting."""
        return len(self._waiting) + len(self._running) + (self._prefilling is not None)

    def submit(self, key: int, prompt_tokens: int, output_tokens: int, now: float) -> None:
        """Hand in a request that will make exactly `output_tokens` tokens."""
        self._waiting.append(_Job(key, prompt_tokens, max(output_tokens, 1)))
        if self._ends == NEVER:
            self._begin(now)

    def cancel(self, key: int) -> None:
        """Drop a request: a waiting one at once, a running one before the next step."""
        self._waiting = deque(job for job in self._waiting if job.key != key)
        self._running.pop(key, None)
        if self._prefilling is not None and self._prefilling.key == key:
            self._prefilling.left = 0

    def advance(self) -> list[Token]:
        """End the operation under way; returns its tokens. Then call `resume`."""
        if self._prefilling is not None:
            job, self._prefilling = self._prefilling, None
            if job.left == 0:
                return []
            job.left -= 1
            if job.left:
                self._running[job.key] = job
            return [Token(job.key, job.left == 0)]
        tokens = []
        for job in list(self._running.values()):
            job.left -= 1
            if job.left == 0:
                del self._running[job.key]
            tokens.append(Token(job.key, job.left == 0))
        return tokens

    def resume(self, now: float) -> None:
        """Begin the next operation, after the driver has reacted to the last one's tokens."""
        self._ends = NEVER
        self._begin(now)

    def _begin(self, now: float) -> None:
        if self._waiting and len(self._running) < self.model.slots:
            self._prefilling = self._waiting.popleft()
            seconds = self.model.prefill(self._prefilling.prompt_tokens)
        elif self._running:
            seconds = self.model.step(len(self._running))
        else:
            return
        seconds *= self._noise()
        self.busy_seconds += seconds
        self._ends = now + seconds
