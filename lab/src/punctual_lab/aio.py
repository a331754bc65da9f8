"""Runs one coroutine on uvloop, the event loop that costs a measuring client least."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import uvloop

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run_async(coroutine: Coroutine[None, None, T]) -> T:
    """Run to the end and return the result; Ctrl-C cancels it and raises KeyboardInterrupt."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)
