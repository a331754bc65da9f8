"""How long a pod's engine takes, and how that follows the measured speed.

An engine with B running requests makes one token for each of them in a decode step of T(B)
seconds. A newcomer's prefill of `base + per_token * prompt` seconds runs alone between two steps,
holds up every resident meanwhile, and yields the newcomer's first token; each further token is
one step. So a request of P prompt and n output tokens that runs alone takes `prefill(P) + (n - 1)
* T(1)` seconds.

Times are seconds, multiplied by a speed ratio: a running mean of actual over predicted service
(exponentially weighted, newest 0.2) that only completed work feeds.
"""

from __future__ import annotations

from dataclasses import dataclass

EWMA_WEIGHT = 0.2
RATIO_BOUNDS = (0.05, 50.0)
"""A ratio outside these bounds is a measurement fault, not a speed."""


@dataclass(frozen=True, slots=True)
class ServiceModel:
    """T(B) for B = 1..slots (seconds, non-decreasing) and the prefill line (seconds)."""

    step_seconds: tuple[float, ...]
    prefill_base: float = 0.0
    prefill_per_token: float = 0.0

    def __post_init__(self) -> None:
        if not self.step_seconds:
            raise ValueError("step_seconds must have at least one entry, got none")
        if min(self.step_seconds) <= 0 or list(self.step_seconds) != sorted(self.step_seconds):
            raise ValueError(
                f"step_seconds must be positive and must not decrease, got {self.step_seconds}"
            )
        if self.prefill_base < 0 or self.prefill_per_token < 0:
            raise ValueError(
                "the prefill line must not be negative, got "
                f"base {self.prefill_base}, per_token {self.prefill_per_token}"
            )

    @property
    def slots(self) -> int:
        """How many requests run at once."""
        return len(self.step_seconds)

    def step(self, batch: int) -> float:
        """Seconds of one decode step with `batch` running requests."""
        steps = self.step_seconds
        return steps[batch - 1] if 0 < batch <= len(steps) else steps[0 if batch < 1 else -1]

    def prefill(self, prompt_tokens: int) -> float:
        """Seconds of a prefill; the first output token comes with it."""
        return self.prefill_base + self.prefill_per_token * prompt_tokens

    def alone(self, prompt_tokens: int, output_tokens: float) -> float:
        """Seconds of service for a request that has the pod to itself."""
        steps = output_tokens - 1 if output_tokens > 1 else 0
        return self.prefill(prompt_tokens) + steps * self.step_seconds[0]

    def tokens_within(self, prompt_tokens: int, seconds: float, batch: int = 1) -> int:
        """Output tokens that one of `batch` requests on the pod makes in so many seconds."""
        left = seconds - self.prefill(prompt_tokens)
        return int(left / self.step(batch)) + 1 if left >= 0 else 0

    def crowded(self, prompt_tokens: int, output_tokens: float) -> float:
        """Seconds of service among a full batch, prefills of later joiners left out."""
        return self.prefill(prompt_tokens) + max(output_tokens - 1, 0) * self.step_seconds[-1]

    def cost(self, prompt_tokens: int, output_tokens: float) -> float:
        """GPU-seconds: engine time taken out of a full batch, T(S) / S for each step shared."""
        steps = output_tokens - 1 if output_tokens > 1 else 0
        return self.prefill(prompt_tokens) + self.steps_cost(steps)

    def steps_cost(self, steps: float) -> float:
        """GPU-seconds of so many steps in a full batch."""
        return steps * self.step_seconds[-1] / len(self.step_seconds)

    def scaled(self, ratio: float) -> ServiceModel:
        """The same engine, every time multiplied by `ratio`."""
        twin = object.__new__(ServiceModel)  # the checks hold for every positive ratio
        write = object.__setattr__
        write(twin, "step_seconds", tuple([step * ratio for step in self.step_seconds]))
        write(twin, "prefill_base", self.prefill_base * ratio)
        write(twin, "prefill_per_token", self.prefill_per_token * ratio)
        return twin


class SpeedRatio:
    """Actual over predicted service time of one pod, exponentially weighted."""

    def __init__(self, start: float = 1.0, *, tracking: bool = True) -> None:
        self._measured = start
        self._tracking = tracking
        self.value = start if tracking else 1.0
        """The factor on every predicted time."""

    def track(self, tracking: bool) -> None:  # a switch of the policy
        """Follow the measured speed, or hold the ratio at 1."""
        self._tracking = tracking
        self.value = self._measured if tracking else 1.0

    def observe(self, actual_seconds: float, predicted_seconds: float) -> None:
        """Learn from one completed request; `predicted_seconds` is before this ratio."""
        if actual_seconds <= 0 or predicted_seconds <= 0:
            return
        low, high = RATIO_BOUNDS
        newest = actual_seconds / predicted_seconds
        if not low <= newest <= high:
            newest = low if newest < low else high
        self._measured += EWMA_WEIGHT * (newest - self._measured)
        if self._tracking:
            self.value = self._measured
