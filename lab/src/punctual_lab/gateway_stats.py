"""What a gateway of the lab's own says of itself."""

from __future__ import annotations

import time
import urllib.request
from typing import Any

import orjson

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


def wait_idle(url: str) -> None:
    """Until the gateway knows that nobody runs on its pods, past it neither. Raises TimeoutError.

    It hears of what others had run there with its next look at a pod, and leaves the slot until
    then.
    """
    end = time.monotonic() + LONGEST
    while any(pod.get("running") or pod.get("foreign") for pod in fetch_stats(url)["pods"]):
        if time.monotonic() > end:
            raise TimeoutError(f"{url} must see its pods idle within {LONGEST:g} s")
        time.sleep(LOOK_EVERY)
