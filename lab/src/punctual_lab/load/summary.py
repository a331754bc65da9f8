"""Counts and quantiles of a run's rows: all six outcomes apart, each size class and tier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from punctual_admission.outcomes import Outcome
from punctual_lab.measures import quantiles, relative_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from punctual_lab.load.rows import RequestRow

COMPLETED = frozenset({Outcome.GOOD, Outcome.LATE})


def summarise(rows: Sequence[RequestRow]) -> dict[str, Any]:
    """Return counts per outcome, latency and refusal quantiles in ms, and shares per size class.

    `latency_ms` is over complete answers (good and late), `refusal_ms` over refusals at arrival.

    Quantiles of nothing are None.
    """
    return {
        **count_outcomes(rows),
        "total": len(rows),
        "latency_ms": quantiles([row.latency_ms for row in rows if is_answered(row)]),
        "refusal_ms": quantiles([r.latency_ms for r in rows if r.outcome is Outcome.REFUSED]),
        "by_tokens": count_by_tokens(rows),
        "by_tier": count_by_tier(rows),
        "good_tokens": sum(r.tokens_wanted for r in rows if r.outcome is Outcome.GOOD),
        "promises": summarise_promises(rows),
    }


def is_answered(row: RequestRow) -> bool:
    """Return whether the request got its whole answer, in time or late."""
    return row.outcome in COMPLETED and row.status == 200


def count_outcomes(rows: Sequence[RequestRow]) -> dict[str, int]:
    """Return how many requests ended in each outcome; every outcome is named."""
    counts = dict.fromkeys((outcome.value for outcome in Outcome), 0)
    for row in rows:
        counts[row.outcome] += 1
    return counts


def count_by_tokens(rows: Sequence[RequestRow]) -> dict[str, dict[str, int]]:
    """Return offered and good requests per size class (tokens asked for)."""
    classes: dict[int, dict[str, int]] = {}
    for row in rows:
        counts = classes.setdefault(row.tokens_wanted, {"offered": 0, "good": 0})
        counts["offered"] += 1
        counts["good"] += row.outcome is Outcome.GOOD
    return {str(tokens): classes[tokens] for tokens in sorted(classes)}


def count_by_tier(rows: Sequence[RequestRow]) -> dict[str, dict[str, int]]:
    """Return all six outcomes and good tokens per tier; empty where no request has one."""
    tiers: dict[str, list[RequestRow]] = {}
    for row in rows:
        tiers.setdefault(row.tier, []).append(row)
    if set(tiers) <= {""}:
        return {}
    return {
        tier: {
            **count_outcomes(tiers[tier]),
            "total": len(tiers[tier]),
            "good_tokens": sum(r.tokens_wanted for r in tiers[tier] if r.outcome is Outcome.GOOD),
        }
        for tier in sorted(tiers)
    }


def summarise_promises(rows: Sequence[RequestRow]) -> dict[str, Any]:
    """Return the relative error of the times predicted at arrival, p50 and p99."""
    told = [row for row in rows if is_answered(row) and row.predicted_ms]
    errors = relative_errors(
        [row.predicted_ms or 0.0 for row in told], [r.latency_ms for r in told]
    )
    return {"predicted": len(told), "relative_error": quantiles(errors, digits=4)}
