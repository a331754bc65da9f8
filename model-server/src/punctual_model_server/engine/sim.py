"""A runner that sleeps the service model instead of computing it.

Many pods fit on two cores this way, with the true timing and a known truth. Sleeps aim at absolute
times on the engine's own schedule: what one sleep overshoots (timer slack, a busy host) the next
one makes up, so that the n-th token comes at the sum of the model's times and no core is burnt by
spinning.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from punctual_model_server.engine.protocol import Calibration
from punctual_model_server.engine.runner import Draw, Shape

_LONGEST_OVERSHOOT_MADE_UP = 0.005
_LONGEST_LOOP_OVERHEAD = 0.001


@dataclass(frozen=True, slots=True)
class SimTruth:
    """What really happens, beside the model that is published.

    `speed` multiplies every duration (2 is half as fast as published), `noise` is the standard
    deviation of a log-normal factor on each duration, `eos_probability` ends an answer at each
    token.
    """

    speed: float = 1.0
    noise: float = 0.0
    eos_probability: float = 0.0
    seed: int = 0


class SimRunner:
    """Sleeps T(B) for a step and the prefill line for a prompt; tokens are drawn, not computed."""

    def __init__(
        self,
        shape: Shape,
        model: Calibration,
        truth: SimTruth | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.shape = shape
        self._model = model
        self._truth = truth or SimTruth()
        self._noise = Random(self._truth.seed)
        self._clock = clock
        self._sleep = sleep
        self._awake_at = clock()
        self._overshoot = 0.0
        self._draws: list[Random] = [Random(0)] * shape.slots

    def prefill(
        self, row: int, prompt: list[int], draw: Draw, go_on: Callable[[], bool]
    ) -> int | None:
        """Sleep the prefill in pieces of about 50 ms, asking `go_on` between them."""
        left = self._actual(self._model.prefill(len(prompt)))
        while left > 0.0:
            piece = min(left, 0.05)
            self._pass(piece)
            left -= piece
            if left > 0.0 and not go_on():
                return None
        source = draw.source if not draw.greedy else Random(hash(tuple(prompt)))
        self._draws[row] = source
        return self._token(row)

    def step(self, active: int) -> list[int]:
        """Sleep T(active)."""
        self._pass(self._actual(self._model.step(active)))
        return [self._token(row) for row in range(active)]

    def move(self, source: int, target: int) -> None:
        """Carry the row's source of tokens along."""
        self._draws[target] = self._draws[source]

    def _token(self, row: int) -> int:
        """Draw a token: lower-case letters, so that the text of an answer is readable."""
        source = self._draws[row]
        if self._truth.eos_probability and source.random() < self._truth.eos_probability:
            return self.shape.eos
        return 64 + int(source.random() * 26)

    def _actual(self, seconds: float) -> float:
        factor = self._truth.speed
        if self._truth.noise:
            factor *= self._noise.lognormvariate(0.0, self._truth.noise)
        return seconds * factor

    def _pass(self, seconds: float) -> None:
        """Sleep `seconds`, less what the previous sleep overshot and the loop took since."""
        now = self._clock()
        since_awake = now - self._awake_at
        owed = self._overshoot + (since_awake if since_awake < _LONGEST_LOOP_OVERHEAD else 0.0)
        target = now + seconds - min(owed, _LONGEST_OVERSHOOT_MADE_UP)
        if target > now:
            self._sleep(target - now)
        self._awake_at = self._clock()
        self._overshoot = self._awake_at - target
