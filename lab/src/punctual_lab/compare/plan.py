"""What a comparison does: load, length, deadline, modes; and what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from punctual_lab.policies import ALL_MODES
from punctual_lab.traces import DEFAULT_PROMPT_TOKENS, REFERENCE_MIX

if TYPE_CHECKING:
    from punctual_lab.load.rows import RequestRow
    from punctual_lab.policies import ModeUnderTest
    from punctual_lab.traces import LengthMix, Trace

BURST_SIZE = 30


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """The inputs of a comparison. `load` is the target utilisation of the model server."""

    load: float = 2.0
    seconds: float = 40.0
    deadline_ms: int = 2000
    seed: int = 1
    modes: tuple[ModeUnderTest, ...] = ALL_MODES
    mix: LengthMix = REFERENCE_MIX
    prompt_tokens: int = DEFAULT_PROMPT_TOKENS
    queue_limit: int = 8
    model: str = "random:lab"
    slots: int = 1
    stream: bool = False
    service_repeats: int = 5
    probe_repeats: int = 5
    burst_rounds: int = 5
    server_arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BurstRun:
    """Bursts of 30: milliseconds of refusals at the client, of the bare handler's, and
    admissions.
    """

    refusal_ms: tuple[float, ...]
    bare_ms: tuple[float, ...]
    admitted: tuple[int, ...]
    server_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ModeRun:
    """One mode's run: rows, the server's speed before and after, and the bare handler's refusals.

    `probe_before` and `probe_after` are seconds of a 16-token request alone.
    """

    mode: ModeUnderTest
    rows: tuple[RequestRow, ...]
    probe_before: float
    probe_after: float
    effective_load: float
    bare_refusal_ms: tuple[float, ...]
    warnings: tuple[str, ...] = ()
    burst: BurstRun | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A finished comparison; `runs` are in the order of `plan.modes`."""

    plan: ComparisonPlan
    service_seconds: dict[int, float]
    trace: Trace
    runs: tuple[ModeRun, ...]

    @property
    def effective_load(self) -> float:
        """Return the mean effective load of the runs."""
        return sum(run.effective_load for run in self.runs) / len(self.runs)
