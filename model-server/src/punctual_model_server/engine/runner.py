"""What the loop needs from something that computes tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Protocol

# Below this temperature dividing by it only overflows; the draw is greedy in all but name.
_GREEDY_BELOW = 1e-5


class Draw:
    """How one request picks its tokens: greedy at temperature 0, else from its own seeded source.

    The source belongs to the request, so the same seed gives the same numbers whatever else is in
    the batch.
    """

    __slots__ = ("source", "temperature", "top_p")

    def __init__(self, temperature: float, top_p: float, seed: int) -> None:
        self.temperature = temperature
        self.top_p = top_p
        self.source = Random(seed)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < _GREEDY_BELOW


@dataclass(frozen=True, slots=True)
class Shape:
    """Fixed figures of a runner: rows, positions per row, vocabulary, bytes of KV per token."""

    slots: int
    max_context: int
    vocabulary: int
    eos: int
    kv_bytes_per_token: int
    device: str


class Runner(Protocol):
    """Rows 0..n-1 hold the running requests, without gaps."""

    @property
    def shape(self) -> Shape:
        """The runner's fixed figures."""
        ...

    def prefill(
        self, row: int, prompt: list[int], draw: Draw, go_on: Callable[[], bool]
    ) -> int | None:
        """Read the prompt into `row` and return the first token.

        Long prompts are read in chunks; between two chunks `go_on` is asked, and when it says no
        the prefill is given up and `None` returned.
        """
        ...

    def step(self, active: int) -> list[int]:
        """Return the next token of each of rows 0..active-1."""
        ...

    def move(self, source: int, target: int) -> None:
        """Move the request in row `source` to the free row `target`."""
        ...
