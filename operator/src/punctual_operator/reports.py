"""What a gateway replica says about itself in `/stats`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class PodReport:
    """A model pod as a gateway sees it; times in seconds, empty or zero where not known."""

    url: str
    usable: bool
    """Whether the gateway sends requests to it."""
    problem: str
    """Why not, in the gateway's words."""
    model: str
    """What it says it serves; empty where it said nothing."""
    ratio: float
    """Actual to predicted time, as the gateway tracks it."""
    step_seconds: tuple[float, ...]
    prefill_base: float
    prefill_per_token: float


@dataclasses.dataclass(frozen=True, slots=True)
class GatewayReport:
    """One replica: the policy it applies and the pods it sees."""

    generation: int
    problems: tuple[str, ...] = ()
    """Faults of a newer policy that the replica did not take."""
    pods: tuple[PodReport, ...] = ()
    offered_load: float | None = None
    """GPU-seconds of work that arrive per second, refused work included; None: not known yet."""


def read_report(given: Mapping[str, Any]) -> GatewayReport:
    """Read the JSON of `/stats`; raises ValueError when it is not what a gateway serves."""
    policy, signals = given.get("policy"), given.get("signals")
    if not isinstance(policy, Mapping) or not isinstance(policy.get("generation"), int):
        raise ValueError("`/stats` must hold `policy.generation`, an integer")
    load = signals.get("offered_load_long") if isinstance(signals, Mapping) else None
    return GatewayReport(
        generation=policy["generation"],
        problems=tuple(str(problem) for problem in policy.get("problems") or ()),
        pods=tuple(_pod(pod) for pod in given.get("pods") or () if isinstance(pod, Mapping)),
        offered_load=float(load) if isinstance(load, int | float) else None,
    )


def _pod(given: Mapping[str, Any]) -> PodReport:
    prefill = given.get("prefill_seconds")
    line: Mapping[str, Any] = prefill if isinstance(prefill, Mapping) else {}
    return PodReport(
        url=str(given.get("url", "")),
        usable=given.get("available") is True,
        problem=str(given.get("problem") or ""),
        model=str(given.get("model") or ""),
        ratio=_number(given.get("speed_ratio"), 1.0),
        step_seconds=_numbers(given.get("step_seconds")),
        prefill_base=_number(line.get("base"), 0.0),
        prefill_per_token=_number(line.get("per_token"), 0.0),
    )


def _numbers(given: object) -> tuple[float, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        return ()
    return tuple(float(value) for value in given)


def _number(given: object, default: float) -> float:
    return float(given) if isinstance(given, int | float) else default
