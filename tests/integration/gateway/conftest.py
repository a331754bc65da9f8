"""Gateways and pods that stop with the test."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from gateway_stand.fake_pod import FakePod
from gateway_stand.stand import Stand, running

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    StartPod = Callable[..., Awaitable[FakePod]]
    StartGateway = Callable[..., Awaitable[Stand]]


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that the program itself runs on: it differs in what it lets pass."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Stops everything at the end, the youngest first."""
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start_pod(stack: AsyncExitStack) -> StartPod:
    """Starts a pod."""

    async def start(**options: Any) -> FakePod:
        pod = await FakePod(**options).start()
        stack.push_async_callback(pod.stop)
        return pod

    return start


@pytest.fixture
def start_gateway(stack: AsyncExitStack, tmp_path: Path) -> StartGateway:
    """Starts a gateway in front of pods."""

    async def start(*pods: FakePod, **options: Any) -> Stand:
        urls = [pod.url for pod in pods]
        return await stack.enter_async_context(running(tmp_path, urls, **options))

    return start
