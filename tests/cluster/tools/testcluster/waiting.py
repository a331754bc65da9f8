"""Waiting for what a cluster does by and by."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from testcluster.kubectl import KubectlError

T = TypeVar("T")


def wait_until(look: Callable[[], T], what: str, *, seconds: float = 60.0, every: float = 0.1) -> T:
    """Call `look` until what it returns counts as true, and return that.

    An AssertionError or KubectlError inside `look` means "not yet": what a server does not serve
    at this moment it may serve at the next. Raises AssertionError with `what` should be true and
    the last thing seen when the time is over.
    """
    end = time.monotonic() + seconds
    while True:
        last: object
        try:
            found = look()
            if found:
                return found
            last = found
        except (AssertionError, KubectlError) as error:
            last = error
        if time.monotonic() > end:
            raise AssertionError(f"within {seconds:g} s: {what}; last seen: {last!r}")
        time.sleep(every)
