"""Which key is worked on when."""

from __future__ import annotations

import asyncio

import pytest

from punctual_operator import work_queue
from punctual_operator.work_queue import WorkQueue


async def test_key_that_waits_is_not_queued_twice() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(3):
        queue.add("a")
    assert len(queue) == 1


async def test_key_added_during_its_work_comes_back_after_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"


async def test_waiting_worker_gets_what_is_added() -> None:
    queue: WorkQueue[str] = WorkQueue()
    worker = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await worker == "a"


async def test_earlier_of_two_delays_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 1000)
    queue.add_after("a", 0.001)
    queue.add_after("a", 500)
    assert await queue.get() == "a"


async def test_added_key_needs_no_delay_any_more() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 0.001)
    queue.add("a")
    await queue.get()
    queue.done("a")
    await asyncio.sleep(0.01)
    assert len(queue) == 0


async def test_closed_queue_has_no_timers() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 0.001)
    queue.close()
    await asyncio.sleep(0.01)
    assert len(queue) == 0


async def test_delay_grows_with_failures_and_is_bounded() -> None:
    queue: WorkQueue[str] = WorkQueue()
    delays = [queue.add_failed("a") for _ in range(30)]
    assert delays[0] == pytest.approx(work_queue.BASE_SECONDS, rel=0.2)
    assert delays[3] > 2 * delays[0]
    assert max(delays) <= work_queue.MAXIMUM_SECONDS * 1.2
    queue.forgive("a")
    assert queue.add_failed("a") == pytest.approx(work_queue.BASE_SECONDS, rel=0.2)
    queue.close()
