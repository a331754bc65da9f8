"""Where the pods are. A discovery gives the set of their base URLs whenever it changes."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

log = logging.getLogger(__name__)

_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


class Discovery(Protocol):
    """Finds pods."""

    def watch(self) -> AsyncIterator[frozenset[str]]:
        """Yield the pods' base URLs now and after each change; an empty Service is an empty set.

        A look-up that fails yields nothing: what was known stays known.
        """
        ...


class StaticDiscovery:
    """A list that never changes."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = frozenset(urls)

    async def watch(self) -> AsyncIterator[frozenset[str]]:
        """Yield the list once."""
        yield self._urls


class DnsDiscovery:
    """The addresses behind a name, as a headless Service publishes them.

    A name without addresses (no pod is ready) is an empty set. A name server that cannot be asked
    says nothing about the pods.
    """

    def __init__(self, host_port: str, interval: float) -> None:
        host, _, port = host_port.rpartition(":")
        self._host = host.strip("[]")
        self._port = int(port)
        self._interval = interval

    async def watch(self) -> AsyncIterator[frozenset[str]]:
        """Look the name up every interval, yield what changed."""
        known: frozenset[str] | None = None
        while True:
            found = await self.try_resolve()
            if found is not None and found != known:
                known = found
                yield found
            await asyncio.sleep(self._interval)

    async def try_resolve(self) -> frozenset[str] | None:
        """The base URLs now; None when the look-up failed."""
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno in _NO_SUCH_NAME:
                return frozenset()
            log.warning("looking up %s failed, the known pods stay: %s", self._host, error)
            return None
        except OSError as error:
            log.warning("looking up %s failed, the known pods stay: %s", self._host, error)
            return None
        return frozenset(_url(answer[0], str(answer[4][0]), self._port) for answer in answers)


def _url(family: int, address: str, port: int) -> str:
    host = f"[{address}]" if family == socket.AF_INET6 else address
    return f"http://{host}:{port}"
