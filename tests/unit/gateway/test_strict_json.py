"""JSON with one meaning."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual_gateway.strict_json import JsonError, parse_object

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@given(value=st.dictionaries(st.text(max_size=6), VALUES), spaces=st.booleans())
def test_every_object_without_duplicates_is_taken_as_it_is(
    value: dict[str, Any], spaces: bool
) -> None:
    text = json.dumps(value, indent=1, separators=(",", " :\n")) if spaces else json.dumps(value)
    assert parse_object(text.encode()) == value


@given(
    before=st.dictionaries(st.text(max_size=6), VALUES),
    key=st.text(max_size=6),
    after=st.lists(VALUES, max_size=3),
)
def test_duplicate_key_is_found_wherever_it_stands(
    before: dict[str, Any], key: str, after: list[Any]
) -> None:
    twice = b"{%s:1 ,%s\n:2}" % (orjson.dumps(key), orjson.dumps(key))
    outer = orjson.dumps({"rest": [before, after]})[:-1] + b',"inner":[' + twice + b"]}"
    with pytest.raises(JsonError, match="must occur once"):
        parse_object(outer)


def test_escaped_spellings_of_one_key_are_the_same_key() -> None:
    with pytest.raises(JsonError):
        parse_object(b'{"a":1,"\\u0061":2}')


def test_quote_and_colon_inside_a_text_are_no_key() -> None:
    assert parse_object(b'{"a":"say \\": and \\" :"}') == {"a": 'say ": and " :'}


@pytest.mark.parametrize("text", [b"", b"[]", b"1", b"{", b'{"a":NaN}', b'{"a":01}', b"\xff"])
def test_anything_but_one_object_is_an_error(text: bytes) -> None:
    with pytest.raises(JsonError):
        parse_object(text)


def test_duplicate_among_very_many_keys_is_found_in_one_pass() -> None:
    """Comparing each with each would hold the gateway up for minutes."""
    keys = ",".join(f'"{number}":1' for number in range(90_000))
    with pytest.raises(JsonError, match="'89999' must occur once"):
        parse_object(f'{{{keys},"89999":1}}'.encode())
