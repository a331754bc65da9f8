"""What a request's headers say of its caller: who it is, its tier, and what it would take instead.

A client's key (often its API key) is kept as a hash alone: it tells clients apart and nothing else.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from multidict import istr

from punctual_gateway.errors import RequestError

if TYPE_CHECKING:
    from aiohttp import web
    from multidict import CIMultiDictProxy

    from punctual_admission.policy import Policy

ACCEPT_SHORTER = istr("X-Accept-Shorter")
_WORDS = {"true": True, "false": False}


def client_of(policy: Policy, http: web.BaseRequest) -> str:
    """The name of the account that the request is charged to; empty: no quota is in force."""
    quota = policy.quota
    if not quota.active:
        return ""
    key = http.headers.get(quota.client_header) if quota.client_header else None
    if key is None:
        return f"peer {http.remote or 'unknown'}"
    return blake2b(key.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def tier_of(policy: Policy, headers: CIMultiDictProxy[str]) -> str:
    """The tier that the request belongs to; empty: none."""
    if not policy.tiers or not policy.tier_header:
        return ""
    return policy.tier_of(headers.get(policy.tier_header, ""))


def accepts_shorter(headers: CIMultiDictProxy[str]) -> bool:
    """Whether a shorter answer is better than a refusal; raises RequestError."""
    given = headers.get(ACCEPT_SHORTER)
    if given is None:
        return False
    word = _WORDS.get(given.strip(" \t").lower())
    if word is None:
        raise RequestError(
            400,
            f"{ACCEPT_SHORTER} must be true or false, got {given[:60]!r}",
            code="invalid_value",
            param=ACCEPT_SHORTER,
        )
    return word
