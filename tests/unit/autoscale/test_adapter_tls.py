"""TLS of the metrics adapter over real sockets: rotation without a restart, and who may come."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from punctual_operator.adapter.certificates import Identity, renewed
from punctual_operator.adapter.tls import Tls
from testcluster.pki import _authority, issue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NAME = "adapter.ns.svc"


def identity() -> Identity:
    return renewed(None, (NAME,), datetime.now(UTC))


@asynccontextmanager
async def listening(tls: Tls) -> AsyncIterator[int]:
    """Answer one byte, y where the peer showed a certificate, on a free port."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("ssl_object").getpeercert()
        writer.write(b"y" if peer else b"n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls.listening)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def ask(port: int, bundle: str, client: tuple[Path, Path] | None = None) -> bytes:
    context = ssl.create_default_context(cadata=bundle)
    if client is not None:
        context.load_cert_chain(*client)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=NAME
    )
    try:
        return await reader.read(1)
    finally:
        writer.close()


async def test_probe_comes_without_a_certificate() -> None:
    served, proxy = identity(), identity()
    async with listening(Tls(served.certificate, served.key, proxy.bundle)) as port:
        assert await ask(port, served.bundle) == b"n"


async def test_certificate_of_an_unknown_authority_ends_the_connection(tmp_path: Path) -> None:
    served, proxy, stranger = identity(), identity(), identity()
    files = tmp_path / "crt", tmp_path / "key"
    files[0].write_text(stranger.certificate)
    files[1].write_text(stranger.key)
    async with listening(Tls(served.certificate, served.key, proxy.bundle)) as port:
        try:
            answer = await ask(port, served.bundle, files)
        except (ssl.SSLError, ConnectionError):
            answer = b""
    assert answer == b""


async def test_new_certificate_is_served_from_the_next_handshake_on() -> None:
    old, new, proxy = identity(), identity(), identity()
    tls = Tls(old.certificate, old.key, proxy.bundle)
    async with listening(tls) as port:
        assert await ask(port, old.bundle) == b"n"
        assert tls.update(new.certificate, new.key, proxy.bundle)
        assert await ask(port, new.bundle) == b"n"
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(port, old.bundle)
    assert not tls.update(new.certificate, new.key, proxy.bundle)


def front_proxy(folder: Path, name: str) -> tuple[str, tuple[Path, Path]]:
    """An authority's certificate, and the files of a client that it has signed."""
    _authority(folder, name, name)
    issue(folder, f"{name}-client", name, "/CN=front-proxy-client")
    files = folder / f"{name}-client.crt", folder / f"{name}-client.key"
    return (folder / f"{name}.crt").read_text(), files


async def test_rotated_authority_of_the_front_proxy_is_followed(tmp_path: Path) -> None:
    """The old one's certificate proves nothing any more, the new one's does, without a restart."""
    served = identity()
    old, old_client = front_proxy(tmp_path, "old")
    new, new_client = front_proxy(tmp_path, "new")
    tls = Tls(served.certificate, served.key, old)
    async with listening(tls) as port:
        assert await ask(port, served.bundle, old_client) == b"y"
        tls.update(served.certificate, served.key, old + new)
        assert await ask(port, served.bundle, old_client) == b"y"
        assert await ask(port, served.bundle, new_client) == b"y"
        tls.update(served.certificate, served.key, new)
        assert await ask(port, served.bundle, new_client) == b"y"
        try:
            answer = await ask(port, served.bundle, old_client)
        except (ssl.SSLError, ConnectionError):
            answer = b""
    assert answer == b""
