"""TLS whose certificate and trusted authorities change without a restart.

The listening socket keeps one context for ever; each handshake is moved to the newest one. Clients
may come without a certificate (probes do), but one that they show has to be of the front proxy's
authority.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path


class Tls:
    """The context to listen with, and what it stands for now."""

    def __init__(self, certificate: str, key: str, authorities: str) -> None:
        self._known = (certificate, key, authorities)
        self._current = build_context(*self._known)
        self.listening = build_context(*self._known)
        self.listening.sni_callback = self._choose

    def update(self, certificate: str, key: str, authorities: str) -> bool:
        """Use these PEM texts from the next handshake on; returns whether they are new."""
        given = certificate, key, authorities
        if given == self._known:
            return False
        self._current, self._known = build_context(*given), given
        return True

    def _choose(self, connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        connection.context = self._current


def build_context(certificate: str, key: str, authorities: str) -> ssl.SSLContext:
    """A server's context; raises ssl.SSLError when the texts do not fit."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authorities)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    with tempfile.TemporaryDirectory() as folder:
        chain, secret = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        chain.write_text(certificate, encoding="utf-8")
        secret.touch(mode=0o600)
        secret.write_text(key, encoding="utf-8")
        context.load_cert_chain(chain, secret)
    return context
