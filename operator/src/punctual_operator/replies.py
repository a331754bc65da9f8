"""Replies of gateways: JSON objects, read to their end."""

from __future__ import annotations

import json
from typing import Any

import aiohttp


async def read_object(response: aiohttp.ClientResponse, route: str, most: int) -> dict[str, Any]:
    """The object in a reply of at most `most` bytes; raises ValueError when there is none.

    A reply comes in as many pieces as the network makes of it, so one read is not enough.
    """
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
