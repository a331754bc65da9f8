"""Counting what became of simulated requests: all six outcomes apart, and each size class."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from punctual_admission.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from punctual_lab.simulate.world import Record


def tally(records: Iterable[Record]) -> dict[str, Any]:
    """Counts per outcome and size class (tokens asked for), total, and tokens answered in time."""
    outcomes = [outcome.value for outcome in Outcome]
    counts: dict[str, Any] = dict.fromkeys(outcomes, 0)
    classes: dict[int, list[int]] = {}
    total = tokens = 0
    good = Outcome.GOOD
    for record in records:
        total += 1
        arrival = record.arrival
        counted = classes.setdefault(arrival.max_tokens, [0, 0])
        counted[0] += 1
        counts[record.outcome or ""] += 1
        if record.outcome is good:
            counted[1] += 1
            tokens += arrival.actual_tokens
    counts["total"], counts["good_tokens"] = total, tokens
    counts["by_tokens"] = {
        str(size): {"offered": offered, "good": good}
        for size, (offered, good) in sorted(classes.items())
    }
    return counts


def tally_by(records: Iterable[Record], group: Callable[[Record], str]) -> dict[str, Any]:
    """One tally for each group."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(group(record), []).append(record)
    return {name: tally(groups[name]) for name in sorted(groups)}


def add_tallies(tallies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum of several tallies."""
    summed: dict[str, Any] = {}
    for one in tallies:
        for name, value in one.items():
            if isinstance(value, dict):
                summed[name] = add_tallies([summed.get(name, {}), value])
            else:
                summed[name] = summed.get(name, 0) + value
    return summed


def add_to_cell(cells: dict[str, Any], row: str, column: str, counts: Mapping[str, Any]) -> None:
    """Add the counts of one more seed to a cell of a table: `cells[row][column]`."""
    cell = cells.setdefault(row, {})
    cell[column] = add_tallies([cell.get(column, {}), counts])


def share_good(counts: Mapping[str, Any]) -> float:
    """Answered in time over offered; 0 when nothing was offered."""
    return float(counts["good"] / counts["total"]) if counts["total"] else 0.0


def share_of_class(counts: Mapping[str, Any], size: str) -> float:
    """Answered in time over offered within one size class; 0 when nothing was offered."""
    one = counts["by_tokens"].get(size, {"offered": 0, "good": 0})
    return float(one["good"] / one["offered"]) if one["offered"] else 0.0


def share_late(counts: Mapping[str, Any]) -> float:
    """Late over completed (good and late)."""
    completed = counts["good"] + counts["late"]
    return float(counts["late"] / completed) if completed else 0.0


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error (0 for a single value)."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, 0.0
    spread = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return mean, math.sqrt(spread / count)
