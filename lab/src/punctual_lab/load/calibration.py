"""A server's service model measured from outside: prefill line, T(B), and how well a line fits.

Service model: a request alone takes prefill(P) + (n - 1) * T(1); prefill(P) = base + per_token *
P yields the first token. With B requests active one decode step takes T(B). Everything is read
from when the events of streamed answers arrive, so the times include HTTP on this machine.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from punctual_lab.load.client import build_body, build_session
from punctual_lab.measures import Line, fit_line, median, quantile, relative_errors
from punctual_lab.traces import TraceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from punctual_lab.load.client import Target

PREFILL_PROMPTS = (8, 64, 256, 512)
STEP_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured, in seconds, and the relative errors on requests not used for the fits.

    `model_errors` are of prefill(P) + (n - 1) * T(1), `line_errors` of the plain line over n.
    """

    prefill: Line
    step_seconds: dict[int, float]
    line: Line
    model_errors: tuple[float, ...]
    line_errors: tuple[float, ...]


def summarise_errors(errors: Sequence[float]) -> dict[str, float]:
    """Return the median, the 90 % quantile and the largest of some errors."""
    ordered = sorted(errors)
    shares = {"median": 0.5, "p90": 0.9, "worst": 1.0}
    return {name: quantile(ordered, share) or 0.0 for name, share in shares.items()}


async def calibrate(
    target: Target,
    *,
    batch_sizes: Sequence[int],
    repeats: int = 5,
    requests: int = 24,
    seed: int = 1,
    on_step: Callable[[], None] = lambda: None,
) -> Calibration:
    """Measure an idle server. Raises ConnectionError when it does not stream a whole answer."""
    async with build_session() as session:
        await stream_times(session, target, 8, 4)
        prefill = await _measure_prefill(session, target, repeats, on_step)
        steps = {
            size: await _measure_step(session, target, size, repeats, on_step)
            for size in batch_sizes
        }
        lengths = build_lengths(requests, seed)
        totals = []
        for prompt, tokens in lengths:
            times = await stream_times(session, target, prompt, tokens)
            totals.append(times[-1])
            on_step()
    return judge_model(prefill, steps, lengths, totals)


def count_steps(batch_sizes: Sequence[int], repeats: int, requests: int) -> int:
    """Return how often `calibrate` calls `on_step`."""
    return repeats * (len(PREFILL_PROMPTS) + len(batch_sizes)) + requests


def build_lengths(requests: int, seed: int) -> list[tuple[int, int]]:
    """Draw prompt and answer lengths for the linearity check: prompts 8-64, answers 2-96."""
    rng = random.Random(seed)
    return [(rng.randint(8, 64), rng.randint(2, 96)) for _ in range(requests)]


def judge_model(
    prefill: Line,
    steps: dict[int, float],
    lengths: Sequence[tuple[int, int]],
    totals: Sequence[float],
) -> Calibration:
    """Predict the mixed requests by the model; fit the plain line on half of them, try the rest."""
    step = steps[min(steps)]
    model = [prefill.at(prompt) + (tokens - 1) * step for prompt, tokens in lengths]
    counts = [tokens for _, tokens in lengths]
    line = fit_line(counts[::2], totals[::2])
    plain = [line.at(count) for count in counts[1::2]]
    return Calibration(
        prefill=prefill,
        step_seconds=steps,
        line=line,
        model_errors=tuple(relative_errors(model, totals)),
        line_errors=tuple(relative_errors(plain, totals[1::2])),
    )


async def stream_times(
    session: aiohttp.ClientSession,
    target: Target,
    prompt_tokens: int,
    tokens: int,
    zero: float | None = None,
) -> list[float]:
    """Return the arrival time of each token in seconds since `zero` (default: since sending)."""
    request = TraceRequest(prompt_tokens, 0.0, prompt_tokens, tokens, None)
    body = build_body(request, target)
    started = time.perf_counter() if zero is None else zero
    times: list[float] = []
    try:
        async with session.post(
            target.completions_url, data=body, headers={"Content-Type": "application/json"}
        ) as response:
            async for line in response.content:
                if line.startswith(b"data: {") and b'"choices":[{' in line:
                    times.append(time.perf_counter() - started)  # noqa: PERF401 - stamped on arrival
    except aiohttp.ClientError as error:
        msg = f"{target.url} broke while it was measured: {error!r}"
        raise ConnectionError(msg) from error
    if len(times) != tokens:
        msg = f"{target.url} sent {len(times)} tokens, status {response.status}: must be {tokens}"
        raise ConnectionError(msg)
    return times


async def _measure_prefill(
    session: aiohttp.ClientSession, target: Target, repeats: int, on_step: Callable[[], None]
) -> Line:
    firsts: dict[int, list[float]] = {prompt: [] for prompt in PREFILL_PROMPTS}
    for _ in range(repeats):
        for prompt in PREFILL_PROMPTS:
            times = await stream_times(session, target, prompt, 2)
            firsts[prompt].append(times[0])
            on_step()
    return fit_line(list(firsts), [median(values) for values in firsts.values()])


async def _measure_step(
    session: aiohttp.ClientSession,
    target: Target,
    size: int,
    repeats: int,
    on_step: Callable[[], None],
) -> float:
    """Return the median gap between tokens while exactly `size` requests are active."""
    gaps: list[float] = []
    for _ in range(repeats):
        zero = time.perf_counter()
        streams = await asyncio.gather(
            *(stream_times(session, target, 8, STEP_TOKENS, zero) for _ in range(size))
        )
        gaps += shared_gaps(streams)
        on_step()
    return median(gaps)


def shared_gaps(streams: Sequence[Sequence[float]]) -> list[float]:
    """Return the gaps between tokens that lie where all streams have started and none has ended."""
    begin = max(times[0] for times in streams)
    end = min(times[-1] for times in streams)
    return [
        b - a for times in streams for a, b in itertools.pairwise(times) if begin <= a and b <= end
    ]
