"""Connections to pods, kept between calls. There is no limit: that would be a hidden queue."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import defaultdict
from dataclasses import dataclass
from urllib.parse import urlsplit

from punctual_gateway.wire import PodConnection

KEEP_ALIVE = 4.0
"""Seconds that an idle connection is kept: less than common servers keep theirs (5 s)."""
CONNECT_TIMEOUT = 2.0
END_TIMEOUT = 1.0
"""Seconds for the end of a body whose last event has come."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a pod listens."""

    host: str
    port: int
    secure: bool
    authority: str
    """For the `Host` header."""
    prefix: str
    """Path before every route."""

    @staticmethod
    def parse(url: str) -> Address:
        """Take a base URL apart."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        return Address(parts.hostname or "", port, secure, parts.netloc, parts.path.rstrip("/"))


class Connections:
    """Idle connections by address, the one used last first."""

    def __init__(self) -> None:
        self._idle: dict[Address, list[tuple[float, PodConnection]]] = defaultdict(list)
        self._tls: ssl.SSLContext | None = None
        self._timer: asyncio.TimerHandle | None = None

    def try_reuse(self, address: Address) -> PodConnection | None:
        """An idle connection, if one is there that is still good."""
        idle, oldest = self._idle.get(address), time.monotonic() - KEEP_ALIVE
        while idle:
            since, connection = idle.pop()
            if since >= oldest and connection.reusable:
                return connection
            connection.close()
        return None

    async def connect(self, address: Address) -> PodConnection:
        """A new connection; raises OSError, of which TimeoutError is one."""
        loop = asyncio.get_running_loop()
        tls = self._context() if address.secure else None
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, connection = await loop.create_connection(
                PodConnection, address.host, address.port, ssl=tls
            )
        return connection

    def give_back(self, address: Address, connection: PodConnection, *, said_all: bool) -> None:
        """Keep the connection if its answer is over, close it otherwise.

        `said_all`: the pod's last event has come, and only the end of the body is missing, which
        servers like to send apart. It is waited for, in the background.
        """
        if connection.reusable:
            self._keep(address, connection)
        elif said_all:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(END_TIMEOUT, connection.close)
            connection.when_over(lambda: self._end(address, connection, timer))
        else:
            connection.close()

    def _end(self, address: Address, connection: PodConnection, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self.give_back(address, connection, said_all=False)

    def _keep(self, address: Address, connection: PodConnection) -> None:
        self._idle[address].append((time.monotonic(), connection))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEEP_ALIVE, self._sweep)

    def _sweep(self) -> None:
        """Close what nobody used again, at addresses that are gone as well."""
        self._timer = None
        oldest = time.monotonic() - KEEP_ALIVE
        for address, idle in list(self._idle.items()):
            while idle and (idle[0][0] < oldest or not idle[0][1].reusable):
                idle.pop(0)[1].close()
            if not idle:
                del self._idle[address]
        if self._idle:
            self._timer = asyncio.get_running_loop().call_later(KEEP_ALIVE, self._sweep)

    def close(self) -> None:
        """Close all that are idle."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for idle in self._idle.values():
            for _, connection in idle:
                connection.close()
        self._idle.clear()

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls
