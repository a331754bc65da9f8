"""Small real HTTP servers that answer as a test wants."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from punctual_lab.load.bare_refuser import build_app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Serve = Callable[[Handler], Awaitable[str]]


async def serve_app(stack: AsyncExitStack, app: web.Application) -> str:
    """Serve an application on a free port until the stack closes; return its base URL."""
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    listener = socket.create_server(("127.0.0.1", 0))
    await web.SockSite(runner, listener).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
async def bare_refuser() -> AsyncIterator[str]:
    """Serve the bare handler that refusals are compared with."""
    async with AsyncExitStack() as stack:
        yield await serve_app(stack, build_app())


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serve POST /v1/completions with a handler on a free port; gives the base URL."""
    async with AsyncExitStack() as stack:

        async def start(handler: Handler) -> str:
            app = web.Application()
            app.router.add_post("/v1/completions", handler)
            return await serve_app(stack, app)

        yield start
