"""Messages between the front process and the engine process.

Times are seconds. Clocks are never compared across the two processes: a deadline travels as the
seconds that are left, and each duration is measured by one side alone.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Finish = Literal["stop", "length", "deadline", "cancelled"]

NO_TOKEN: Final = -1


class Submit(NamedTuple):
    """Front to engine: generate for this request.

    `remaining` is the time left until the deadline, `None` for no deadline. With `first_token_only`
    the deadline counts for the first token and no longer afterwards.
    """

    rid: int
    prompt: list[int]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    ignore_eos: bool
    remaining: float | None
    first_token_only: bool


class Cancel(NamedTuple):
    """Front to engine: stop this request before the next step. Answered by an event `cancelled`."""

    rid: int


class Event(NamedTuple):
    """One token of one request, or its end without a token (`token` is `NO_TOKEN`)."""

    rid: int
    token: int
    finish: Finish | None


class Start(NamedTuple):
    """A request got its slot: how long it waited in the engine and how long its prefill took."""

    rid: int
    queue_seconds: float
    prefill_seconds: float


class Step(NamedTuple):
    """Engine to front after each prefill and step, and as a heartbeat without events when idle.

    `seq` grows by one with each message; `ratio` is actual over calibrated time (see `SpeedRatio`).
    """

    seq: int
    ratio: float
    events: list[Event]
    start: Start | None


class Calibration(NamedTuple):
    """The measured service model.

    `step_seconds[b - 1]` is the time of one decode step with b requests active and never falls with
    b. A prefill of P prompt tokens takes `prefill_base + prefill_per_token * P`.
    """

    step_seconds: tuple[float, ...]
    prefill_base: float
    prefill_per_token: float
    calibrated_at: float

    def step(self, active: int) -> float:
        """Return the time of one step with `active` requests (clamped to the slots there are)."""
        table = self.step_seconds
        return table[min(max(active, 1), len(table)) - 1]

    def prefill(self, prompt_tokens: int) -> float:
        """Return the time of the prefill of `prompt_tokens`."""
        return self.prefill_base + self.prefill_per_token * prompt_tokens


class Ready(NamedTuple):
    """Engine to front: the model is loaded and calibrated."""

    calibration: Calibration
    ratio: float
    max_context: int
    vocabulary: int
    eos: int
    kv_bytes_per_token: int
    device: str


class Failed(NamedTuple):
    """Engine to front: the model cannot be served; the engine process ends after this."""

    message: str
