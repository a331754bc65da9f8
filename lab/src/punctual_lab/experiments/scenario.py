"""Scenarios of the autoscaling experiment: a load over time, and what the pool may do about it.

A scenario is a YAML file: `load` is a list of segments, `{seconds, load}` or `{seconds, from, to}`
in pods of work; the other fields have the defaults below. See `scenarios/*.yaml`, and lab/README.md
for the table of fields.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from punctual_lab.experiments import reference
from punctual_lab.load.retry import RETRY_BEHAVIOURS
from punctual_lab.simulate.fleet import Signal
from punctual_lab.simulate.world import Arrival
from punctual_lab.traces import REFERENCE_MIX

FOLDER = files("punctual_lab.experiments") / "scenarios"
LARGEST_LOAD = 100.0
LONGEST = 86_400.0
BOUNDS: dict[str, tuple[float, float]] = {
    "pods": (1, 1000),
    "minimum": (1, 1000),
    "maximum": (1, 1000),
    "deadline": (0.001, LONGEST),
    "slow": (0.001, 1000),
    "down_window": (0, 3600),
    "tolerance": (0, 1),
}
WHOLE = {"pods", "minimum", "maximum"}


@dataclass(frozen=True, slots=True)
class Segment:
    """So many seconds in which the load goes evenly from one value to another."""

    seconds: float
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load and a pool; times in seconds, loads in pods of work."""

    name: str
    segments: tuple[Segment, ...]
    description: str = ""
    pods: int = 1
    """Ready at the start."""
    minimum: int = 1
    maximum: int = 20
    pod_starts: tuple[float, ...] = (60.0, 180.0)
    deadline: float = 2.0
    slow: float = reference.SLOW
    """Factor on the reference machine's times: the pods' speed."""
    retries: str = "none"
    down_window: float = 300.0
    """For so long the need must have been lower before pods go."""
    tolerance: float = 0.1
    """The share of the target within which the autoscaler changes nothing."""
    targets: dict[str, float] = field(default_factory=dict)
    """Other targets than the experiment's own, by the signal's name."""

    @property
    def seconds(self) -> float:
        """Its whole length."""
        return sum(segment.seconds for segment in self.segments)

    def load_at(self, when: float) -> float:
        """Pods of work per second at a time."""
        for segment in self.segments:
            if when < segment.seconds:
                share = when / segment.seconds
                return segment.begin + (segment.end - segment.begin) * share
            when -= segment.seconds
        return 0.0

    def arrivals(self, seed: int) -> list[Arrival]:
        """Poisson arrivals of the reference mix at this load, by thinning."""
        rng = random.Random(seed)
        peak = max(max(segment.begin, segment.end) for segment in self.segments)
        rate = peak / reference.mean_service_seconds(self.slow)
        found, now = [], 0.0
        while rate > 0 and (now := now + rng.expovariate(rate)) < self.seconds:
            if rng.random() * peak < self.load_at(now):
                found.append(Arrival(now, 0, REFERENCE_MIX.draw(rng), self.deadline))
        return found


def read_scenario(name: str) -> Scenario:
    """A scenario of the package by its name, or a file by its path; raises ValueError."""
    path = FOLDER / f"{name}.yaml"
    if not path.is_file():
        path = Path(name)
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"scenario must be a file or one of {', '.join(known_scenarios())}, got {name!r}"
        ) from error
    except yaml.YAMLError as error:
        raise ValueError(f"scenario {name} must be YAML: {error}") from error
    return build_scenario(Path(name).stem, given)


def known_scenarios() -> list[str]:
    """The names of the package's own scenarios."""
    return sorted(item.name.removesuffix(".yaml") for item in FOLDER.iterdir())


def build_scenario(name: str, given: Any) -> Scenario:
    """Check and build a scenario; raises ValueError that names the field."""
    if not isinstance(given, dict) or not isinstance(given.get("load"), list) or not given["load"]:
        raise ValueError(f"scenario {name} must be an object with `load`, a list of segments")
    allowed = {one.name for one in fields(Scenario)} - {"name", "segments"}
    unknown = sorted(set(given) - allowed - {"load"})
    if unknown:
        raise ValueError(
            f"scenario {name} has `{unknown[0]}`; must be load, {', '.join(sorted(allowed))}"
        )
    values = {key: given[key] for key in allowed & set(given)}
    for key, (low, high) in BOUNDS.items():
        if key in values:
            values[key] = _within(key, values[key], low, high)
    for key in WHOLE & set(values):
        values[key] = int(values[key])
    if "pod_starts" in values:
        values["pod_starts"] = _pod_starts(values["pod_starts"])
    if "targets" in values:
        values["targets"] = _targets(values["targets"])
    if values.get("retries", "none") not in RETRY_BEHAVIOURS:
        raise ValueError(
            f"retries must be one of {', '.join(RETRY_BEHAVIOURS)}, got {values['retries']!r}"
        )
    scenario = Scenario(name, tuple(_segment(one) for one in given["load"]), **values)
    if not scenario.minimum <= scenario.pods <= scenario.maximum:
        raise ValueError(
            f"`pods` must be from `minimum` {scenario.minimum} to `maximum` {scenario.maximum}, "
            f"got {scenario.pods}"
        )
    return scenario


def _pod_starts(given: Any) -> tuple[float, ...]:
    if not isinstance(given, list) or not given:
        raise ValueError(f"`pod_starts` must be a list of seconds, got {given!r}")
    return tuple(_within("pod_starts", one, 0, LONGEST) for one in given)


def _targets(given: Any) -> dict[str, float]:
    known = [signal.value for signal in Signal]
    if not isinstance(given, dict) or set(given) - set(known):
        raise ValueError(f"`targets` must name signals of {', '.join(known)}, got {given!r}")
    return {name: _within(f"targets.{name}", one, 0.001, 1e6) for name, one in given.items()}


def _within(name: str, value: Any, low: float, high: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"`{name}` must be a number from {low:g} to {high:g}, got {value!r}")
    return float(value)


def _segment(given: Any) -> Segment:
    if not isinstance(given, dict):
        raise ValueError(f"a segment must be an object, got {given!r}")
    seconds = _number(given, "seconds", LONGEST)
    if "load" in given:
        load = _number(given, "load", LARGEST_LOAD)
        return Segment(seconds, load, load)
    return Segment(
        seconds, _number(given, "from", LARGEST_LOAD), _number(given, "to", LARGEST_LOAD)
    )


def _number(given: dict[str, Any], name: str, maximum: float) -> float:
    value = given.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise ValueError(
            f"`{name}` of a segment must be a number from 0 to {maximum:g}, got {value!r}"
        )
    return float(value)
