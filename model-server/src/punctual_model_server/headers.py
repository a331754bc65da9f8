"""Request headers that this server reads."""

from __future__ import annotations

import re
import uuid
from typing import Final

from multidict import CIMultiDictProxy

from punctual_model_server.errors import bad_request
from punctual_model_server.generation import Promise

REQUEST_ID: Final = "X-Request-Id"
REMAINING_MS: Final = "X-Punctual-Remaining-Ms"
OBJECTIVE: Final = "X-Punctual-Objective"
EXPECTED_TOKENS: Final = "X-Punctual-Expected-Tokens"
_NAME = re.compile(r"[\x21-\x7e]{1,128}")
_INTEGER = re.compile(r"-?[0-9]{1,12}")


def read_request_id(headers: CIMultiDictProxy[str]) -> str:
    """Return the caller's id when it is 1 to 128 visible ASCII characters, else a new one."""
    given = headers.get(REQUEST_ID, "")
    return given if _NAME.fullmatch(given) else uuid.uuid4().hex


def read_promise(headers: CIMultiDictProxy[str]) -> Promise:
    """Return what the headers say about the deadline.

    Raises:
        ApiError: 400 for values that are not what they must be.
    """
    remaining = _integer(headers, REMAINING_MS)
    expected = _integer(headers, EXPECTED_TOKENS)
    if expected is not None and expected < 1:
        raise bad_request(f"{EXPECTED_TOKENS} must be at least 1, got {expected}", EXPECTED_TOKENS)
    objective = headers.get(OBJECTIVE, "completion")
    if objective not in {"completion", "first_token"}:
        raise bad_request(
            f"{OBJECTIVE} must be completion or first_token, got {objective!r}", OBJECTIVE
        )
    return Promise(
        remaining=None if remaining is None else remaining / 1000,
        first_token_only=objective == "first_token",
        expected_tokens=expected,
    )


def _integer(headers: CIMultiDictProxy[str], name: str) -> int | None:
    values = headers.getall(name, [])
    if not values:
        return None
    if len(values) > 1 or not _INTEGER.fullmatch(values[0].strip()):
        raise bad_request(f"{name} must be one integer of at most 12 digits, got {values!r}", name)
    return int(values[0])
