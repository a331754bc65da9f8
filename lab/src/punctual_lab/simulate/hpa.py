"""The HorizontalPodAutoscaler's arithmetic on virtual time, after its documentation.

Sources: Kubernetes, "Horizontal Pod Autoscaling" (algorithm details, configurable scaling
behaviour) and the API reference of autoscaling/v2. In short, for every metric

    Value         r = sum / target; within the tolerance of 1: the present count;
                  else ceil(r * ready pods)
    AverageValue  r = sum / (target * pods); within the tolerance of 1: the present count;
                  else ceil(sum / target), whatever the count is now

The largest proposal wins. A metric that cannot be read forbids to scale down and, when none can be
read, to scale at all. Then windows and rates: down only to the largest recommendation of the
window, up only as fast as the most generous policy allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SYNC_SECONDS = 15.0


class Target(StrEnum):
    """How a metric is compared with its target."""

    VALUE = "Value"
    AVERAGE_VALUE = "AverageValue"


@dataclass(frozen=True, slots=True)
class Metric:
    """An external metric: the sum of its items, None where it cannot be read."""

    target_type: Target
    target: float
    value: float | None


class RateKind(StrEnum):
    """The unit of a rate policy."""

    PODS = "Pods"
    PERCENT = "Percent"


@dataclass(frozen=True, slots=True)
class Rate:
    """So many pods, or so many percent, within a period of seconds."""

    kind: RateKind
    value: int
    period: float = 15.0


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Windows in seconds, rates and tolerance; the defaults are those of Kubernetes."""

    tolerance: float = 0.1
    up_window: float = 0.0
    down_window: float = 300.0
    up_rates: tuple[Rate, ...] = (Rate(RateKind.PODS, 4), Rate(RateKind.PERCENT, 100))
    down_rates: tuple[Rate, ...] = (Rate(RateKind.PERCENT, 100),)


@dataclass(slots=True)
class Autoscaler:
    """One HorizontalPodAutoscaler; call `decide` every `SYNC_SECONDS`."""

    minimum: int
    maximum: int
    behaviour: Behaviour = field(default_factory=Behaviour)
    _recommended: list[tuple[float, int]] = field(default_factory=list)
    _added: list[tuple[float, int]] = field(default_factory=list)
    _removed: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now: float, pods: int, ready: int, metrics: Sequence[Metric]) -> int:
        """The count to set; `pods` is the present one, of which `ready` are ready."""
        if pods > self.maximum:
            return self._book(now, pods, self.maximum)
        if pods < self.minimum:
            return self._book(now, pods, self.minimum)
        proposals = [self._propose(metric, pods, ready) for metric in metrics]
        known = [proposal for proposal in proposals if proposal is not None]
        if not known:
            return pods
        wanted = max(known)
        if len(known) < len(proposals) and wanted < pods:
            return pods
        return self._book(now, pods, self._limit(now, pods, self._stabilise(now, pods, wanted)))

    def _propose(self, metric: Metric, pods: int, ready: int) -> int | None:
        if metric.value is None:
            return None
        average = metric.target_type is Target.AVERAGE_VALUE
        ratio = metric.value / (metric.target * pods if average else metric.target)
        if abs(1.0 - ratio) <= self.behaviour.tolerance:
            return pods
        return math.ceil(metric.value / metric.target) if average else math.ceil(ratio * ready)

    def _stabilise(self, now: float, pods: int, wanted: int) -> int:
        """Up to the least, down to the largest recommendation of the window."""
        longest = max(self.behaviour.up_window, self.behaviour.down_window)
        self._recommended = [one for one in self._recommended if one[0] > now - longest]
        up = down = wanted
        for when, recommended in self._recommended:
            if when > now - self.behaviour.up_window:
                up = min(up, recommended)
            if when > now - self.behaviour.down_window:
                down = max(down, recommended)
        self._recommended.append((now, wanted))
        return min(max(pods, up), down)

    def _limit(self, now: float, pods: int, wanted: int) -> int:
        """As far as the rates and the bounds allow."""
        if wanted > pods:
            allowed = max(self._most(now, pods, rate) for rate in self.behaviour.up_rates)
            return min(wanted, max(allowed, pods), self.maximum)
        if wanted < pods:
            allowed = min(self._least(now, pods, rate) for rate in self.behaviour.down_rates)
            return max(wanted, min(allowed, pods), self.minimum)
        return pods

    def _most(self, now: float, pods: int, rate: Rate) -> int:
        begun = self._count_at(now - rate.period, pods)
        if rate.kind is RateKind.PODS:
            return begun + rate.value
        return math.ceil(begun * (1 + rate.value / 100))

    def _least(self, now: float, pods: int, rate: Rate) -> int:
        begun = self._count_at(now - rate.period, pods)
        if rate.kind is RateKind.PODS:
            return begun - rate.value
        return int(begun * (1 - rate.value / 100))

    def _count_at(self, when: float, pods: int) -> int:
        """How many pods there were at the begin of a period."""
        added = sum(count for at, count in self._added if at > when)
        removed = sum(count for at, count in self._removed if at > when)
        return pods - added + removed

    def _book(self, now: float, pods: int, wanted: int) -> int:
        if wanted > pods:
            self._added.append((now, wanted - pods))
        elif wanted < pods:
            self._removed.append((now, pods - wanted))
        return wanted
