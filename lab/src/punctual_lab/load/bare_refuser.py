"""A bare aiohttp handler that answers every POST with a constant 503: the least a refusal can cost.

Run as `python -m punctual_lab.load.bare_refuser PORT`. It uses the same event loop (uvloop)
as the gateway, reads the request's body as any refusal must, and does nothing else.
"""

from __future__ import annotations

import sys

import uvloop
from aiohttp import web

BODY = (
    b'{"error":{"message":"the service is overloaded","type":"overloaded","param":null,'
    b'"code":"constant"}}'
)
HEADERS = {"Retry-After": "1", "Content-Type": "application/json"}


async def _refuse(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(status=503, body=BODY, headers=HEADERS)


async def _ready(_: web.Request) -> web.Response:
    return web.Response()


def build_app() -> web.Application:
    """Build the application: /readyz answers 200, each POST the constant 503."""
    app = web.Application()
    app.router.add_get("/readyz", _ready)
    app.router.add_post("/{path:.*}", _refuse)
    return app


def main() -> None:
    """Serve on 127.0.0.1 and the port given as the only argument."""
    uvloop.install()
    web.run_app(build_app(), host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)


if __name__ == "__main__":
    main()
