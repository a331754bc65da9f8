"""The pod network: which address of the loopback stands for which pod address.

An EndpointSlice takes no loopback address, and any other needs rights on the machine. So a model
pod is at 10.79.x.y for Kubernetes and its process listens on 127.79.x.y.
"""

from __future__ import annotations

import itertools
import random

POD, LOOPBACK = "10.79.", "127.79."
_numbers = itertools.count(random.SystemRandom().randrange(60_000))


def next_address() -> str:
    """A loopback address that no other pod of this run has, and hardly one of another run."""
    high, low = divmod(next(_numbers) % 64_000, 250)
    return f"{LOOPBACK}{high}.{low + 1}"


def pod_address(address: str) -> str:
    """The address that Kubernetes knows the process by."""
    return address.replace(LOOPBACK, POD, 1)


def reachable(url: str) -> str:
    """The URL of the process behind a URL of the pod network."""
    return url.replace(f"//{POD}", f"//{LOOPBACK}", 1)
