"""Seeded request traces: when each request leaves, how long its prompt is, how much it asks for.

A trace is a plain tuple of `TraceRequest`, ordered by time, and depends on its arguments alone:
the same seed gives the same trace on every machine. The live load generator and the simulator
both play it.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import random
from dataclasses import dataclass, replace
from datetime import datetime
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

Trace = tuple["TraceRequest", ...]


@dataclass(slots=True, unsafe_hash=True)  # not frozen: a trace has thousands
class TraceRequest:
    """One planned request.

    `at_seconds` counts from the start of the trace; `max_tokens` is what the caller asks for;
    `deadline_ms` counts from arrival, `None` leaves it to the policy's default; `tier` is the
    caller's, empty: none.
    """

    index: int
    at_seconds: float
    prompt_tokens: int
    max_tokens: int
    deadline_ms: int | None
    tier: str = ""


@dataclass(frozen=True, slots=True)
class LengthMix:
    """Answer lengths in tokens and the share of requests that ask for each; shares sum to 1."""

    tokens: tuple[int, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for a mix that cannot be drawn from."""
        if not self.tokens or len(self.tokens) != len(self.shares):
            msg = (
                f"length mix has {len(self.tokens)} lengths and {len(self.shares)} shares: "
                "must be one share for each length"
            )
            raise ValueError(msg)
        if min(self.tokens) < 1:
            msg = f"length mix has a length of {min(self.tokens)} tokens: must be at least 1"
            raise ValueError(msg)
        if min(self.shares) < 0 or not math.isclose(sum(self.shares), 1.0, abs_tol=1e-6):
            msg = f"length mix has shares {self.shares}: must be non-negative and sum to 1"
            raise ValueError(msg)

    def mean(self) -> float:
        """Return the expected length in tokens."""
        return math.fsum(n * p for n, p in zip(self.tokens, self.shares, strict=True))

    def mean_of(self, seconds_by_tokens: dict[int, float]) -> float:
        """Return the mean of what is known per length, such as E[S] from service times."""
        return math.fsum(
            seconds_by_tokens[n] * p for n, p in zip(self.tokens, self.shares, strict=True)
        )

    def draw(self, rng: random.Random) -> int:
        """Draw one length."""
        return rng.choices(self.tokens, self.shares)[0]


REFERENCE_MIX = LengthMix(tokens=(4, 16, 64), shares=(0.5, 0.35, 0.15))
DEFAULT_PROMPT_TOKENS = 16


def rate_for_load(load: float, mean_service_seconds: float) -> float:
    """Return the arrivals per second at which utilisation is `load` (rho = lambda E[S])."""
    if load <= 0 or mean_service_seconds <= 0:
        msg = f"load {load} and mean service {mean_service_seconds} s: both must be above 0"
        raise ValueError(msg)
    return load / mean_service_seconds


def build_poisson_trace(
    *,
    rate_per_second: float,
    duration_seconds: float,
    seed: int,
    mix: LengthMix = REFERENCE_MIX,
    prompt_tokens: int = DEFAULT_PROMPT_TOKENS,
    deadline_ms: int | None = None,
) -> Trace:
    """Build independent arrivals: exponential gaps of mean 1/rate, up to `duration_seconds`."""
    rng = random.Random(seed)
    times = _poisson_times(rng, rate_per_second, duration_seconds)
    return _with_lengths(times, rng, mix, prompt_tokens, deadline_ms)


def fit_to_work(
    trace: Trace, seconds_by_tokens: dict[int, float], work_seconds: float, duration_seconds: float
) -> Trace:
    """The first requests of `trace` that together take `work_seconds`, drawn out to a duration.

    A trace of some hundred requests, few of them long, asks for a tenth more or less than its rate
    says. Fitted, its load is the one that was meant, to half a request; the pattern of its arrivals
    is as drawn, in a uniformly scaled time. A trace that asks for less is returned as it is.
    """
    taken = 0.0
    for index, request in enumerate(trace):
        own = seconds_by_tokens[request.max_tokens]
        if taken + own / 2 > work_seconds:
            scale = duration_seconds / request.at_seconds
            return tuple(replace(one, at_seconds=one.at_seconds * scale) for one in trace[:index])
        taken += own
    return trace


def build_burst_trace(
    *,
    count: int,
    seed: int,
    mix: LengthMix = REFERENCE_MIX,
    prompt_tokens: int = DEFAULT_PROMPT_TOKENS,
    deadline_ms: int | None = None,
) -> Trace:
    """Build `count` requests that all leave at time 0."""
    return _with_lengths([0.0] * count, random.Random(seed), mix, prompt_tokens, deadline_ms)


def build_periodic_burst_trace(
    *,
    count: int,
    period_seconds: float,
    duration_seconds: float,
    seed: int,
    mix: LengthMix = REFERENCE_MIX,
    prompt_tokens: int = DEFAULT_PROMPT_TOKENS,
    deadline_ms: int | None = None,
) -> Trace:
    """Build bursts of `count` requests at 0, period, 2 * period, ... before `duration_seconds`."""
    if period_seconds <= 0:
        msg = f"burst period is {period_seconds} s: must be above 0"
        raise ValueError(msg)
    starts = itertools.takewhile(
        lambda at: at < duration_seconds, (i * period_seconds for i in itertools.count())
    )
    times = [start for start in starts for _ in range(count)]
    return _with_lengths(times, random.Random(seed), mix, prompt_tokens, deadline_ms)


def read_recorded_trace(
    path: Path,
    *,
    limit: int | None = None,
    time_scale: float = 1.0,
    max_prompt_tokens: int | None = None,
    max_output_tokens: int | None = None,
    deadline_ms: int | None = None,
) -> Trace:
    """Read a recorded workload.

    The file is CSV, also gzip, with the columns TIMESTAMP, ContextTokens and GeneratedTokens.
    Times start at 0 and are multiplied by `time_scale` (0.5 doubles the load). Lengths above the
    two maxima are cut to them, and lengths of 0 become 1. Raises ValueError naming the line for a
    row that cannot be read.
    """
    rows = itertools.islice(_recorded_rows(path), limit)
    requests: list[TraceRequest] = []
    start: datetime | None = None
    for index, (stamp, prompt, output) in enumerate(rows):
        start = start or stamp
        requests.append(
            TraceRequest(
                index=index,
                at_seconds=(stamp - start).total_seconds() * time_scale,
                prompt_tokens=_clip(prompt, max_prompt_tokens),
                max_tokens=_clip(output, max_output_tokens),
                deadline_ms=deadline_ms,
            )
        )
    if any(b.at_seconds < a.at_seconds for a, b in itertools.pairwise(requests)):
        msg = f"{path}: timestamps go backwards; they must be in order"
        raise ValueError(msg)
    return tuple(requests)


def with_tiers(trace: Trace, shares: dict[str, float], seed: int) -> Trace:
    """Return the trace with tiers drawn by their shares; what is left of 1 has none.

    Raises ValueError for shares that are negative or sum to more than 1.
    """
    left = 1.0 - math.fsum(shares.values())
    if left < -1e-6 or min(shares.values(), default=0.0) < 0:
        msg = f"tiers have shares {shares}: must be non-negative and sum to at most 1"
        raise ValueError(msg)
    rng, names = random.Random(seed), [*shares, ""]
    weights = [*shares.values(), max(left, 0.0)]
    return tuple(replace(request, tier=rng.choices(names, weights)[0]) for request in trace)


def offered_seconds(trace: Iterable[TraceRequest], seconds_by_tokens: dict[int, float]) -> float:
    """Return the engine seconds a trace asks for, given the seconds of each length."""
    return math.fsum(seconds_by_tokens[request.max_tokens] for request in trace)


def _poisson_times(rng: random.Random, rate: float, duration: float) -> list[float]:
    if rate <= 0 or duration <= 0:
        msg = f"rate {rate} per second over {duration} s: both must be above 0"
        raise ValueError(msg)
    gaps = (rng.expovariate(rate) for _ in itertools.count())
    return list(itertools.takewhile(lambda at: at < duration, itertools.accumulate(gaps)))


def _with_lengths(
    times: list[float],
    rng: random.Random,
    mix: LengthMix,
    prompt_tokens: int,
    deadline_ms: int | None,
) -> Trace:
    return tuple(
        TraceRequest(index, at, prompt_tokens, mix.draw(rng), deadline_ms)
        for index, at in enumerate(times)
    )


def _recorded_rows(path: Path) -> Iterator[tuple[datetime, int, int]]:
    with _open_text(path) as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                yield (
                    datetime.fromisoformat(row["TIMESTAMP"].strip()),
                    int(row["ContextTokens"]),
                    int(row["GeneratedTokens"]),
                )
            except (KeyError, TypeError, ValueError) as error:
                msg = (
                    f"{path} line {number}: {error!s} in {row}; a line must have TIMESTAMP, "
                    "ContextTokens and GeneratedTokens"
                )
                raise ValueError(msg) from error


def _open_text(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _clip(value: int, maximum: int | None) -> int:
    return max(1, value if maximum is None else min(value, maximum))
