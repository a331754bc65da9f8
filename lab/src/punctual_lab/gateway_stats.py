"""What a gateway of the lab's own says of itself."""

from __future__ import annotations

import time
import urllib.request
from typing import TYPE_CHECKING, Any

import orjson

from punctual_lab.processes import ProcessError

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_EVERY = 0.02
LONGEST = 30.0
"""Seconds; a gateway looks at a pod at least once a second."""


def fetch(url: str) -> bytes:
    """The body of a page. Raises OSError."""
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  # our own gateway
        body: bytes = answer.read()
        return body


def fetch_stats(url: str) -> dict[str, Any]:
    """The numbers of `/stats`. Raises OSError."""
    stats: dict[str, Any] = orjson.loads(fetch(f"{url}/stats"))
    return stats


def wait_for(url: str, lacking: Callable[[dict[str, Any]], str], seconds: float) -> None:
    """Until `lacking` says nothing of the gateway's numbers.

    Raises ProcessError with what it says when the time is over.
    """
    end = time.monotonic() + seconds
    while lack := lacking(fetch_stats(url)):
        if time.monotonic() > end:
            raise ProcessError(f"{url} {lack} within {seconds:g} s")
        time.sleep(LOOK_EVERY)


def wait_idle(url: str) -> None:
    """Until the gateway knows that nobody runs on its pods, past it neither. Raises ProcessError.

    It hears of what others had run there with its next look at a pod, and leaves the slot until
    then.
    """
    wait_for(url, _busy, LONGEST)


def _busy(stats: dict[str, Any]) -> str:
    busy = any(pod.get("running") or pod.get("foreign") for pod in stats["pods"])
    return "must see its pods idle" if busy else ""
