"""How far the finish predicted at arrival is from the measured one, live, with 1 and with 4
slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from punctual_lab.load.client import Target
from punctual_lab.load.generator import run_load
from punctual_lab.load.summary import is_answered
from punctual_lab.measures import quantile, relative_errors
from punctual_lab.traces import REFERENCE_MIX, build_poisson_trace, rate_for_load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from punctual_lab.load.rows import RequestRow
    from punctual_lab.traces import Trace

PROMPT_TOKENS = 16
DEADLINE_MS = 3000
LOAD = 1.5


def build_trace(capacity: Mapping[str, Any], seconds: float, seed: int) -> Trace:
    """Build a Poisson trace of 1.5 times what the server can do with all slots busy."""
    slots = int(capacity["slots"])
    prefill = capacity["prefill_seconds"]
    alone = prefill["base"] + prefill["per_token"] * PROMPT_TOKENS
    each = alone + (REFERENCE_MIX.mean() - 1) * capacity["step_seconds"][slots - 1] / slots
    return build_poisson_trace(
        rate_per_second=rate_for_load(LOAD, each),
        duration_seconds=seconds,
        seed=seed,
        prompt_tokens=PROMPT_TOKENS,
        deadline_ms=DEADLINE_MS,
    )


async def measure_forecast(
    url: str, trace: Trace, on_row: Callable[[RequestRow], None]
) -> tuple[RequestRow, ...]:
    """Play the trace against a gateway and return its rows."""
    return (await run_load(trace, Target(url, "lab"), on_row=on_row)).rows


def summarise_forecast(rows: Sequence[RequestRow]) -> dict[str, Any]:
    """Return the error of the predicted time from arrival to end (shares, and median in ms).

    A positive bias means that answers came later than predicted.
    """
    told = [
        (row.predicted_ms, row.latency_ms) for row in rows if is_answered(row) and row.predicted_ms
    ]
    if not told:
        return {"answered": 0, "median": None, "p90": None, "bias": None, "median_ms": None}
    errors = sorted(relative_errors([p for p, _ in told], [a for _, a in told]))
    distances = sorted(abs(actual - predicted) for predicted, actual in told)
    ratio = sorted(actual / predicted - 1 for predicted, actual in told)
    return {
        "answered": len(told),
        "median": round(quantile(errors, 0.5) or 0.0, 4),
        "p90": round(quantile(errors, 0.9) or 0.0, 4),
        "bias": round(quantile(ratio, 0.5) or 0.0, 4),
        "median_ms": round(quantile(distances, 0.5) or 0.0, 1),
    }
