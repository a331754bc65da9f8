"""Replies of gateways: JSON objects, read to their end."""

from __future__ import annotations

import json
from typing import Any

import aiohttp


async def ask(
    session: aiohttp.ClientSession, address: str, port: int, route: str, most: int
) -> dict[str, Any]:
    """The object with which a gateway answers, of at most `most` bytes.

    Raises ValueError when there is none, aiohttp.ClientError or OSError when nobody answers.

    A reply comes in as many pieces as the network makes of it, so one read is not enough.
    """
    host = f"[{address}]" if ":" in address else address
    async with session.get(f"http://{host}:{port}{route}") as response:
        if response.status != 200:
            raise ValueError(f"{route} answered with status {response.status}")
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > most:
                raise ValueError(f"`{route}` must be at most {most} bytes")
    given = json.loads(body)
    if not isinstance(given, dict):
        raise ValueError(f"`{route}` must be an object")
    return given
