"""What the autoscaling controller saw and decided, and whether the arithmetic says the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kubernetes.client import ApiException

from loopstand.api import Api
from loopstand.clock import SYNC_SECONDS
from punctual_lab.simulate.hpa import Autoscaler, Behaviour, Metric, Rate, RateKind, Target

LOOK_SECONDS = 0.2
UNITS = {"": 1.0, "m": 0.001, "k": 1000.0}


@dataclass(frozen=True, slots=True)
class Look:
    """The autoscaler and its target at one moment."""

    at: float
    """Monotonic seconds."""
    replicas: int
    """That the target is told to have."""
    pods: int
    """That it has, those of a rolling update included."""
    ready: int
    present: int
    """The count that the autoscaler last decided from."""
    decided: int
    """And what it decided."""
    value: float | None
    """The metric that it decided by, None where it could not read it."""
    version: str


class Recorder:
    """Looks at an autoscaler and its Deployment all the time; see `looks`."""

    def __init__(self, api: Api, namespace: str, scaler: str, target: str) -> None:
        self.looks: list[Look] = []
        self._api = api
        head = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        self._paths = (
            f"{head}/{scaler}",
            f"/apis/apps/v1/namespaces/{namespace}/deployments/{target}",
        )
        self.spec = api.get(self._paths[0])["spec"]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join(20)

    def between(self, begin: float, end: float) -> list[Look]:
        """What was seen in a span of monotonic time."""
        return [one for one in self.looks if begin <= one.at < end]

    def counts(self, begin: float, end: float) -> list[int]:
        """All counts that the target was told to have in a span of time, in their order."""
        return [count for _, count in steps((o.at, o.replicas) for o in self.between(begin, end))]

    @property
    def last(self) -> Look:
        """The latest look."""
        return self.looks[-1]

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            try:
                self._look()
            except ApiException:  # the API server is busy or away: the next look tells
                continue

    def _look(self) -> None:
        scaler, target = (self._api.get(path) for path in self._paths)
        status, replicas = scaler.get("status", {}), target["spec"]["replicas"]
        pods = target.get("status", {}).get("replicas", 0)
        present = status.get("currentReplicas", 0)
        look = Look(
            time.monotonic(),
            replicas,
            pods,
            target.get("status", {}).get("readyReplicas", 0),
            present,
            status.get("desiredReplicas", 0),
            _value(status, present),
            scaler["metadata"]["resourceVersion"],
        )
        self.looks.append(look)


def steps(counts: Iterable[tuple[float, int]]) -> list[tuple[float, int]]:
    """The first of each run of equal counts."""
    found: list[tuple[float, int]] = []
    for at, count in counts:
        if not found or found[-1][1] != count:
            found.append((at, count))
    return found


def without_flickers(counts: list[tuple[float, int]], seconds: float) -> list[tuple[float, int]]:
    """Without counts that were left for the one before them in less than so many seconds.

    The status rounds the value, so that one between two counts can give the other one for a look.
    """
    found: list[tuple[float, int]] = []
    for at, count in counts:
        if len(found) > 1 and found[-2][1] == count and at - found[-1][0] < seconds:
            found.pop()
        else:
            found.append((at, count))
    return found


def replay(looks: list[Look], spec: dict[str, Any]) -> list[tuple[float, int]]:
    """The counts that the laboratory's arithmetic sets on the recorded values.

    It decides whenever the controller has, and at each of its looks in between, when nothing that
    it wrote has changed. Each decision starts from the count that there really was.
    """
    target = _quantity(spec["metrics"][0]["external"]["target"]["averageValue"])
    hpa = Autoscaler(spec["minReplicas"], spec["maxReplicas"], behaviour_of(spec["behavior"]))
    first = looks[0]
    # the recording begins in the middle: what was recommended before is the count that there is
    hpa.decide(first.at, first.present, first.present, [_just(target, first.present)])
    found: list[tuple[float, int]] = []
    last, version = -SYNC_SECONDS, ""
    for look in looks:
        if look.version == version and look.at - last < SYNC_SECONDS:
            continue
        last, version = look.at, look.version
        metric = Metric(Target.AVERAGE_VALUE, target, look.value)
        found.append((look.at, hpa.decide(look.at, look.present, look.present, [metric])))
    return steps(found)


def _just(target: float, count: int) -> Metric:
    """A value for which this count is right."""
    return Metric(Target.AVERAGE_VALUE, target, target * count)


def behaviour_of(given: dict[str, Any]) -> Behaviour:
    """The laboratory's form of an autoscaler's `behavior`; its tolerance is the same both ways."""
    up, down, usual = given.get("scaleUp", {}), given.get("scaleDown", {}), Behaviour()
    tolerance = up.get("tolerance")
    return Behaviour(
        tolerance=usual.tolerance if tolerance is None else _quantity(tolerance),
        up_window=up.get("stabilizationWindowSeconds", usual.up_window),
        down_window=down.get("stabilizationWindowSeconds", usual.down_window),
        up_rates=_rates(up) or usual.up_rates,
        down_rates=_rates(down) or usual.down_rates,
    )


def _rates(rules: dict[str, Any]) -> tuple[Rate, ...]:
    return tuple(
        Rate(RateKind(one["type"]), one["value"], one["periodSeconds"])
        for one in rules.get("policies", ())
    )


def _value(status: dict[str, Any], present: int) -> float | None:
    conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
    metrics = status.get("currentMetrics") or []
    if conditions.get("ScalingActive") != "True" or not metrics or "external" not in metrics[0]:
        return None
    current = metrics[0]["external"]["current"].get("averageValue")
    return None if current is None else _quantity(current) * present


def _quantity(text: str) -> float:
    number = text.rstrip("mk")
    return float(number) * UNITS[text[len(number) :]]
