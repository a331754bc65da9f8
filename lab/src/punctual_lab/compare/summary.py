"""A comparison as one JSON object: `summary.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from punctual_lab.compare.plan import BURST_SIZE
from punctual_lab.load.summary import summarise
from punctual_lab.measures import quantiles

if TYPE_CHECKING:
    from punctual_lab.compare.plan import BurstRun, Comparison, ModeRun


def summarise_comparison(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison's numbers: inputs, speeds, each mode's counts, and refusal cost.

    Times are in the unit of their name; probes are seconds of a 16-token request alone.
    """
    plan, runs = comparison.plan, comparison.runs
    return {
        "model": plan.model,
        "slots": plan.slots,
        "seed": plan.seed,
        "target_load": plan.load,
        "effective_load": round(comparison.effective_load, 3),
        "speed_probe_before": round(runs[0].probe_before, 5),
        "speed_probe_after": round(runs[-1].probe_after, 5),
        "duration_seconds": plan.seconds,
        "deadline_ms": plan.deadline_ms,
        "queue_limit": plan.queue_limit,
        "prompt_tokens": plan.prompt_tokens,
        "service_seconds": {str(n): round(s, 5) for n, s in comparison.service_seconds.items()},
        "modes": {run.mode.name: summarise_mode(run) for run in runs},
        "refusal": summarise_refusals(runs),
        "warnings": [f"{run.mode.name}: {text}" for run in runs for text in run.warnings],
    }


def summarise_mode(run: ModeRun) -> dict[str, Any]:
    """Return one mode's counts, quantiles and speeds."""
    return {
        **summarise(run.rows),
        "bare_refusal_ms": quantiles(run.bare_refusal_ms),
        "effective_load": round(run.effective_load, 3),
        "speed_probe_before": round(run.probe_before, 5),
        "speed_probe_after": round(run.probe_after, 5),
    }


def summarise_refusals(runs: tuple[ModeRun, ...]) -> dict[str, Any]:
    """Return refusal times beside the bare handler's, sustained and in bursts of 30."""
    return {
        "sustained": {
            run.mode.name: compare_quantiles(
                summarise(run.rows)["refusal_ms"], quantiles(run.bare_refusal_ms)
            )
            for run in runs
        },
        f"burst_of_{BURST_SIZE}": next(
            (summarise_burst(run.burst) for run in runs if run.burst is not None), None
        ),
    }


def summarise_burst(burst: BurstRun) -> dict[str, Any]:
    """Return the times of a burst's refusals at the client and inside the gateway."""
    return {
        **compare_quantiles(quantiles(burst.refusal_ms), quantiles(burst.bare_ms)),
        "server_ms": quantiles(burst.server_ms),
        "refused": len(burst.refusal_ms),
        "admitted_per_burst": list(burst.admitted),
    }


def compare_quantiles(
    gateway: dict[str, float | None], bare: dict[str, float | None]
) -> dict[str, Any]:
    """Return both sets of quantiles and their ratio; None where one is missing."""
    pairs = {key: (gateway[key], bare[key]) for key in gateway}
    ratio = {key: round(a / b, 2) if a and b else None for key, (a, b) in pairs.items()}
    return {"gateway_ms": gateway, "bare_ms": bare, "ratio": ratio}
