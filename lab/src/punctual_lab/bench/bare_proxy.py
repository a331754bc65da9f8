"""A bare aiohttp proxy: the least that forwarding a request through aiohttp can cost.

Run as `python -m punctual_lab.bench.bare_proxy PORT UPSTREAM_URL`. It reads the request's body,
posts it upstream on a kept connection and passes the answer on, chunk by chunk; nothing else.
Same event loop (uvloop) as the gateway.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import aiohttp
import uvloop
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SESSION = web.AppKey("session", aiohttp.ClientSession)
UPSTREAM = web.AppKey("upstream", str)
PASSED_ON = ("Content-Type", "Content-Length")


async def _forward(request: web.Request) -> web.StreamResponse:
    body = await request.read()
    url = request.app[UPSTREAM] + request.path_qs
    headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
    async with request.app[SESSION].post(url, data=body, headers=headers) as answer:
        kept = {name: answer.headers[name] for name in PASSED_ON if name in answer.headers}
        response = web.StreamResponse(status=answer.status, headers=kept)
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response


async def _ready(_: web.Request) -> web.Response:
    return web.Response()


async def _hold_session(app: web.Application) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
    ) as session:
        app[SESSION] = session
        yield


def build_app(upstream: str) -> web.Application:
    """Build the application: /readyz answers 200, each POST goes upstream."""
    app = web.Application()
    app[UPSTREAM] = upstream.rstrip("/")
    app.cleanup_ctx.append(_hold_session)
    app.router.add_get("/readyz", _ready)
    app.router.add_post("/{path:.*}", _forward)
    return app


def main() -> None:
    """Serve on 127.0.0.1; the arguments are the port and the upstream's URL."""
    uvloop.install()
    app = build_app(sys.argv[2])
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)


if __name__ == "__main__":
    main()
