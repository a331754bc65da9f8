"""JSON objects without two meanings: what the gateway read is what a pod will read.

orjson refuses NaN, Infinity, numbers beyond a double, lone surrogates, bad UTF-8 and deep nesting,
but takes the last of two equal keys. Duplicates are found by counting: every key of the text is
a quote followed by a colon, so a text with as many of these as the parsed value has keys holds no
key twice. Strings may hold such pairs too; then the slow parser decides.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

_KEY_END = re.compile(rb'"[ \t\r\n]*:')


class JsonError(ValueError):
    """The text is not one strict JSON object; the message says why."""


def parse_object(text: bytes | bytearray) -> dict[str, Any]:
    """Parse one JSON object; raises JsonError."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise JsonError(f"the body must be JSON: {error}") from error
    if not isinstance(value, dict):
        raise JsonError(f"the body must be a JSON object, got {type(value).__name__}")
    if len(_KEY_END.findall(text)) != _count_keys(value):
        _find_duplicates(text)
    return value


def _find_duplicates(text: bytes | bytearray) -> None:
    try:
        json.loads(text, object_pairs_hook=_refuse_duplicates)
    except RecursionError:
        raise JsonError("the body must be JSON: nested too deeply") from None


def _count_keys(value: dict[str, Any]) -> int:
    count, stack = 0, [value]
    while stack:
        for item in _children(stack.pop()):
            if type(item) is dict:
                count += len(item)
            stack.append(item)
    return count + len(value)


def _children(value: Any) -> Any:
    values = value.values() if type(value) is dict else value
    kinds = set(map(type, values))
    if dict not in kinds and list not in kinds:
        # Long lists of token ids are the common case: none of these can hold a key.
        return ()
    return [item for item in values if type(item) is dict or type(item) is list]


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise JsonError(f"the key {key[:80]!r} must occur once in an object")
        seen.add(key)
