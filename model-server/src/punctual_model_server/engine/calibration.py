"""Measuring the service model at start: T(B) and the prefill line.

The measured turns run through the loop itself, messages included, so that the published times hold
what the loop costs beside the forward pass. T(B) = min over measured sizes P >= B of the time of P
rows: a batch may run with idle rows where that is faster, and T(B) never falls with B.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from punctual_model_server.engine.loop import EngineLoop
from punctual_model_server.engine.protocol import Calibration, Submit

if TYPE_CHECKING:
    from punctual_model_server.engine.torch_runner import TorchRunner

_WARM_UP_STEPS: Final = 2
_PROMPT: Final = 16
_PREFILL_LENGTHS: Final = (4, 32, 96, 224)
_PREFILL_REPEATS: Final = 4
_PASSES: Final = 3
_PROBE_TOKENS: Final = 12


def calibrate(loop: EngineLoop, runner: TorchRunner, steps: int = 4) -> Calibration:
    """Measure, set the runner's row sizes and the loop's calibration and starting ratio."""
    prefill_base, prefill_per_token = fit_line(_time_prefills(loop, runner))
    times = _time_steps(loop, runner, steps)
    table, runner.rows_for = choose_rows(times, runner.shape.slots)
    loop.calibration = Calibration(table, prefill_base, prefill_per_token, time.time())
    loop.speed.value = _probe(loop, runner)
    return loop.calibration


def choose_rows(
    times: Sequence[tuple[int, float]], slots: int
) -> tuple[tuple[float, ...], list[int]]:
    """Return T(1..slots) and, for each batch (index 0 unused), the number of rows to run."""
    table: list[float] = []
    rows = [0]
    for batch in range(1, slots + 1):
        seconds, size = min((t, p) for p, t in times if p >= batch)
        table.append(seconds)
        rows.append(size)
    return tuple(table), rows


def fit_line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return (base, per token) of the line with the least relative squared error, neither negative.

    Weighted least squares with weights 1/y^2 in closed form.
    """
    weights = [1.0 / (y * y) for _, y in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    spread = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    together = sum(
        w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True)
    )
    slope = max(together / spread, 0.0) if spread > 0.0 else 0.0
    base = mean_y - slope * mean_x
    if base >= 0.0:
        return base, slope
    return 0.0, sum(y / x for x, y in points) / len(points)


def lower_quartile(values: Sequence[float]) -> float:
    """Return the value below which a quarter of the values lie."""
    return sorted(values)[len(values) // 4]


def _time_steps(loop: EngineLoop, runner: TorchRunner, steps: int) -> list[tuple[int, float]]:
    """Return (rows, seconds of a turn) for each size of the runner's kernel.

    All sizes are measured in each of several passes, and the lower quartile counts: a neighbour
    that takes the processor for a moment then distorts no single size. What neighbours take on
    average is the business of the speed ratio, whose start value the probe measures.
    """
    runner.use_kernel(runner.kernel)
    samples: dict[int, list[float]] = {size: [] for size in runner.kernel.sizes}
    for _ in range(_PASSES):
        for size, seconds in samples.items():
            _fill(loop, size, _prompt_length(runner))
            for _ in range(_WARM_UP_STEPS):
                loop.turn()
            seconds += [_timed(loop.turn) for _ in range(steps)]
        loop.running.clear()
    return [(size, lower_quartile(seconds)) for size, seconds in samples.items()]


def _time_prefills(loop: EngineLoop, runner: TorchRunner) -> list[tuple[int, float]]:
    """Return (prompt tokens, seconds of the turn that reads the prompt and ends)."""
    longest = runner.shape.max_context - 1
    lengths = sorted({min(length, longest) for length in _PREFILL_LENGTHS})
    _time_prefill(loop, lengths[0])  # the first forward of a process is slower
    return [
        (length, lower_quartile([_time_prefill(loop, length) for _ in range(_PREFILL_REPEATS)]))
        for length in lengths
    ]


def _time_prefill(loop: EngineLoop, length: int) -> float:
    loop.take([_request(length, 1)])
    return _timed(loop.turn)


def _probe(loop: EngineLoop, runner: TorchRunner) -> float:
    """Return actual over calibrated time of a full batch, the start value of the speed ratio."""
    length = _prompt_length(runner)
    slots = runner.shape.slots
    predicted = slots * loop.calibration.prefill(length)
    predicted += (_PROBE_TOKENS - 1) * loop.calibration.step(slots)
    for _ in range(slots):
        loop.take([_request(length, _PROBE_TOKENS)])
    began = time.monotonic()
    while loop.turn():
        pass
    return (time.monotonic() - began) / predicted


def _prompt_length(runner: TorchRunner) -> int:
    return min(_PROMPT, runner.shape.max_context // 4)


def _fill(loop: EngineLoop, size: int, length: int) -> None:
    """Have `size` requests that outlast the measurement."""
    missing = size - len(loop.running)
    loop.take([_request(length, loop.runner.shape.max_context - length)] * missing)


def _request(length: int, max_tokens: int) -> Submit:
    """Return a request that the front does not know, so that it ignores the tokens."""
    return Submit(-1, [1] * length, max_tokens, 0.0, 1.0, 0, True, None, False)


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began
