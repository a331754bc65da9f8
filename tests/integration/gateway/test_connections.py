"""Connections to pods are used again when they may be, and never when they may not."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from punctual_gateway import connections
from punctual_gateway.connections import Address, Connections
from punctual_gateway.upstream import Fault, Upstream, UpstreamError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b"data: [DONE]\n\n"
LAST_EVENT = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
END = b"0\r\n\r\n"


class RawPod:
    """Answers each request with the last event, and sends the end of the body when told."""

    def __init__(self) -> None:
        self.opened = 0
        self.answers = HEAD + LAST_EVENT
        self.end = asyncio.Event()
        self.ended = asyncio.Event()
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.opened += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n{}")
                writer.write(self.answers)
                await self.end.wait()
                writer.write(END)
                await writer.drain()
                self.ended.set()
        self.closed.set()
        writer.close()


@pytest.fixture
async def pod() -> RawPod:
    """What the server does."""
    return RawPod()


@pytest.fixture
async def address(pod: RawPod) -> AsyncIterator[Address]:
    """Where it listens."""
    server = await asyncio.start_server(pod.serve, "127.0.0.1", 0)
    yield Address.parse(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    server.close()


async def call(kept: Connections, address: Address) -> None:
    """One call, read to its last event."""
    upstream = Upstream(kept, address)
    await upstream.open("/v1/completions", b"{}", {})
    assert (await upstream.read())[-1].done
    upstream.close()


async def test_end_of_the_body_that_comes_apart_is_waited_for(
    pod: RawPod, address: Address
) -> None:
    kept = Connections()
    await call(kept, address)
    assert kept.try_reuse(address) is None
    pod.end.set()
    await pod.ended.wait()
    while (connection := kept.try_reuse(address)) is None:  # noqa: ASYNC110  # it has no event
        await asyncio.sleep(0.001)
    kept.give_back(address, connection, said_all=True)
    await call(kept, address)
    assert pod.opened == 1
    kept.close()


async def test_end_of_the_body_that_never_comes_ends_the_connection(
    pod: RawPod, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "END_TIMEOUT", 0.01)
    kept = Connections()
    connection = await kept.connect(address)
    over = asyncio.Event()
    await connection.send(b"POST / HTTP/1.1\r\n\r\n{}")
    kept.give_back(address, connection, said_all=True)
    connection.when_over(over.set)
    await over.wait()
    assert kept.try_reuse(address) is None
    pod.end.set()
    await pod.closed.wait()


async def test_idle_connection_is_dropped_before_the_pod_would_drop_it(
    pod: RawPod, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.end.set()
    kept = Connections()
    await call(kept, address)
    await pod.ended.wait()
    monkeypatch.setattr(connections, "KEEP_ALIVE", -1.0)
    assert kept.try_reuse(address) is None


async def test_idle_connection_is_closed_although_nobody_calls_there_again(
    pod: RawPod, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods come and go: their connections must not stay."""
    monkeypatch.setattr(connections, "KEEP_ALIVE", 0.01)
    pod.end.set()
    await call(Connections(), address)
    await pod.closed.wait()


async def test_call_that_is_given_up_closes_its_connection(pod: RawPod, address: Address) -> None:
    pod.answers = HEAD
    kept = Connections()
    upstream = Upstream(kept, address)
    await upstream.open("/v1/completions", b"{}", {})
    upstream.close()
    pod.end.set()
    await pod.closed.wait()


async def test_pod_that_speaks_something_else_is_told_apart(pod: RawPod, address: Address) -> None:
    pod.answers = b"SSH-2.0-OpenSSH_9.9\r\n\r\n"
    with pytest.raises(UpstreamError) as failed:
        await call(Connections(), address)
    assert failed.value.fault is Fault.INVALID
    pod.end.set()


async def test_prefix_of_the_backend_comes_before_the_route() -> None:
    address = Address.parse("https://models.example:8443/team/")
    assert (address.host, address.port, address.secure) == ("models.example", 8443, True)
    assert (address.prefix, address.authority) == ("/team", "models.example:8443")
    assert Address.parse("http://[fd::1]:80").host == "fd::1"
