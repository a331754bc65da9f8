"""How long model pods take to start: from being scheduled to being ready, weights included."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from punctual_operator.api import Api, ApiError
from punctual_operator.kinds import Kind

log = logging.getLogger(__name__)

SAMPLE = 50
"""Pods of a pool that are looked at."""
KNOWN_SECONDS, UNKNOWN_SECONDS = 600.0, 60.0
"""When to look again where a start is known, and where none is."""


def read_start_seconds(pods: Iterable[Mapping[str, Any]]) -> float | None:
    """Median of the pods that are ready and never restarted; None where there is none."""
    found = [start for pod in pods if (start := _start(pod)) is not None]
    return statistics.median(found) if found else None


def _start(pod: Mapping[str, Any]) -> float | None:
    status = pod.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    times = [_when(conditions.get(kind) or {}) for kind in ("PodScheduled", "Ready")]
    restarts = sum(one.get("restartCount", 0) for one in status.get("containerStatuses") or ())
    if times[0] is None or times[1] is None or restarts:
        return None
    return max((times[1] - times[0]).total_seconds(), 0.0)


def _when(condition: Mapping[str, Any]) -> datetime | None:
    written = condition.get("lastTransitionTime")
    if condition.get("status") != "True" or not isinstance(written, str):
        return None
    try:
        return datetime.fromisoformat(written)
    except ValueError:
        return None


class PodStarts:
    """The starts of the pods of each pool, read now and then."""

    def __init__(self, api: Api, clock: Callable[[], float] = time.monotonic) -> None:
        self._api, self._clock = api, clock
        self._known: dict[tuple[str, str], tuple[float | None, float]] = {}
        """Start, and when to look again, by namespace and selector."""

    async def get(self, namespace: str, selector: str) -> float | None:
        """Seconds, or None where no pod tells; what was known stays where none does any more."""
        key, now = (namespace, selector), self._clock()
        start, due = self._known.get(key, (None, 0.0))
        if selector and now >= due:
            start = await self._read(namespace, selector) or start
            pause = UNKNOWN_SECONDS if start is None else KNOWN_SECONDS
            self._known = {one: kept for one, kept in self._known.items() if kept[1] > now - 3600}
            self._known[key] = start, now + pause
        return start

    async def _read(self, namespace: str, selector: str) -> float | None:
        try:
            pods = await self._api.read_all(
                Kind("", "v1", "pods", "Pod", labels=selector), namespace, limit=SAMPLE
            )
        except ApiError as error:
            log.warning("the pods %s of %s were not listed: %s", selector, namespace, error)
            return None
        return read_start_seconds(pods)
