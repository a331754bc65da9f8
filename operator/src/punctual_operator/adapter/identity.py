"""Whom a request is from: the API server says so in headers, and a certificate proves it.

Only a peer with a certificate of the front proxy's authority, and one of its allowed names, may
name a user. From anybody else these headers are worth nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from multidict import MultiMapping

    Headers = MultiMapping[str]


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """A user as the API server authenticated it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class FrontProxy:
    """How the API server shows itself: its authority's certificates, names, header names."""

    authorities: str
    allowed_names: tuple[str, ...] = ()
    """Common names; none: any that the authority has signed."""
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    def identify(self, peer: Mapping[str, Any] | None, headers: Headers) -> User | None:
        """The user, or None when the peer may not name one; `peer` is a verified certificate."""
        if not peer or (self.allowed_names and common_name(peer) not in self.allowed_names):
            return None
        name = _first(headers, self.user_headers)
        if not name:
            return None
        return User(
            name,
            tuple(one for key in self.group_headers for one in headers.getall(key, [])),
            _first(headers, self.uid_headers),
            self._extra(headers),
        )

    def _extra(self, headers: Headers) -> tuple[tuple[str, tuple[str, ...]], ...]:
        found: dict[str, list[str]] = {}
        for prefix in self.extra_prefixes:
            for key in {str(key) for key in headers}:
                if key.lower().startswith(prefix.lower()):
                    name = unquote(key[len(prefix) :]).lower()
                    found.setdefault(name, []).extend(headers.getall(key, []))
        return tuple((name, tuple(values)) for name, values in sorted(found.items()))


def read_front_proxy(data: Mapping[str, str]) -> FrontProxy:
    """Read ConfigMap kube-system/extension-apiserver-authentication; raises ValueError."""
    authorities = data.get("requestheader-client-ca-file", "").strip()
    if not authorities:
        raise ValueError("the ConfigMap must hold `requestheader-client-ca-file`")
    base = FrontProxy(authorities)
    return FrontProxy(
        authorities,
        _names(data, "requestheader-allowed-names", ()),
        _names(data, "requestheader-username-headers", base.user_headers),
        _names(data, "requestheader-group-headers", base.group_headers),
        _names(data, "requestheader-uid-headers", base.uid_headers),
        _names(data, "requestheader-extra-headers-prefix", base.extra_prefixes),
    )


def common_name(peer: Mapping[str, Any]) -> str:
    """The common name in a certificate, as `getpeercert` shows it."""
    subject = dict(pair for part in peer.get("subject", ()) for pair in part)
    return str(subject.get("commonName", ""))


def _names(data: Mapping[str, str], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    text = data.get(key, "").strip()
    if not text:
        return default
    given = json.loads(text)
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise ValueError(f"`{key}` must be a list of names, got {text[:80]!r}")
    return tuple(given) or default


def _first(headers: Headers, names: tuple[str, ...]) -> str:
    return next((value for name in names for value in headers.getall(name, [])), "")
