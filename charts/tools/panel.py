"""What a panel of the dashboard is, and the expressions that panels are made of."""

from __future__ import annotations

import dataclasses

SELECTOR = 'namespace=~"$namespace", punctual_dev_policy=~"$policy"'
POLICY = "namespace, punctual_dev_policy"
POLICY_NAME = "{{punctual_dev_policy}}"


@dataclasses.dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression, in which SELECTOR stands for the chosen policies, and its legend."""

    expression: str
    legend: str


@dataclasses.dataclass(frozen=True, slots=True)
class Panel:
    """One panel; `unit` is Grafana's name of it, `steps` are values from which a colour holds."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    minimum: float | None = 0
    maximum: float | None = None
    steps: tuple[tuple[float | None, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """A question and the panels that answer it."""

    title: str
    panels: tuple[Panel, ...]


def rate(metric: str, matchers: str = "", by: str = "") -> str:
    """Events per second of the chosen policies, added up."""
    inside = f"{SELECTOR}, {matchers}" if matchers else SELECTOR
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{{{inside}}}[$__rate_interval]))"


def gauge(metric: str, join: str, by: str = POLICY, matchers: str = "") -> str:
    """A value now, with replicas joined by `sum`, `max` or `min`."""
    inside = f"{SELECTOR}, {matchers}" if matchers else SELECTOR
    return f"{join} by ({by}) ({metric}{{{inside}}})"


def quantile(share: float, histogram: str, by: str = POLICY) -> str:
    """A quantile over all replicas."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', by=f'{by}, le')})"


def increase(metric: str, matchers: str) -> str:
    """Events within the time that the dashboard shows."""
    return f"sum(increase({metric}{{{SELECTOR}, {matchers}}}[$__range]))"
