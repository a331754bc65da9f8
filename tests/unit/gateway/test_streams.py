"""Events from pods, and the whole answers made of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual_gateway.assembly import Assembly
from punctual_gateway.call import Route
from punctual_gateway.sse import LONGEST_EVENT, EventReader, StreamError, parse_event

ONE = b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n'
LAST = b'data: {"choices":[{"index":0,"text":"b","finish_reason":"length"}]}\n\n'
STREAM = ONE + b": comment\n\n" + LAST + b"data: [DONE]\n\n"


@given(places=st.lists(st.integers(0, len(STREAM)), max_size=8), crlf=st.booleans())
def test_events_are_the_same_in_whatever_pieces_they_come(places: list[int], crlf: bool) -> None:
    reader = EventReader()
    data = STREAM.replace(b"\n", b"\r\n") if crlf else STREAM
    edges = [0, *sorted(places), len(data)]
    pieces = [data[a:b] for a, b in pairwise(edges)]
    events = [event for piece in pieces for event in reader.feed(piece)]
    assert [event.tokens for event in events] == [1, 0, 1, 0]
    assert events[-1].done
    assert events[2].finish_reason == "length"


@pytest.mark.parametrize(
    "block", [b"data: {", b"data: []", b"data: {}", b'data: {"choices":[1]}', b"<html>", b"data:"]
)
def test_what_is_no_chunk_is_an_error(block: bytes) -> None:
    with pytest.raises(StreamError):
        parse_event(block)


def test_event_without_an_end_is_an_error_at_some_length() -> None:
    reader = EventReader()
    with pytest.raises(StreamError):
        reader.feed(b"data: " + b"x" * LONGEST_EVENT)


def test_event_of_several_lines_is_one_object() -> None:
    event = parse_event(b'event: x\ndata: {"choices":\ndata: []}')
    assert event.chunk == {"choices": []}
    assert event.tokens == 0


def test_tokens_are_counted_by_their_ids_where_the_pod_lists_them() -> None:
    event = parse_event(b'data: {"choices":[{"text":"ab","token_ids":[1,2,3]}]}')
    assert event.tokens == 3


@pytest.mark.parametrize(
    ("delta", "finish", "tokens"),
    [({"role": "assistant"}, None, 0), ({"content": "x"}, None, 1), ({}, "stop", 1), ({}, None, 0)],
)
def test_role_of_a_chat_is_no_token(delta: dict[str, Any], finish: str | None, tokens: int) -> None:
    chunk = {"choices": [{"delta": delta, "finish_reason": finish}]}
    assert parse_event(b"data: " + orjson.dumps(chunk)).tokens == tokens


def test_error_in_a_stream_is_seen() -> None:
    assert parse_event(b'data: {"error":{"message":"x"}}').error == {"message": "x"}


def whole(route: Route, *chunks: dict[str, Any]) -> dict[str, Any]:
    """The answer made of chunks."""
    assembly = Assembly(route)
    for chunk in chunks:
        assembly.add(chunk)
    made: dict[str, Any] = orjson.loads(assembly.body(3, len(chunks)))
    return made


def test_usage_is_the_pods_own_or_counted() -> None:
    chunk = {"id": "1", "choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}
    counted = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    assert whole(Route.COMPLETIONS, chunk)["usage"] == counted
    usage = {"choices": [], "usage": {"prompt_tokens": 9}}
    assert whole(Route.COMPLETIONS, chunk, usage)["usage"] == {"prompt_tokens": 9}


def test_log_probabilities_are_joined() -> None:
    pieces = [
        {"choices": [{"index": 0, "text": t, "logprobs": {"tokens": [t], "token_logprobs": [p]}}]}
        for t, p in (("a", -1.0), ("b", -2.0))
    ]
    logprobs = whole(Route.COMPLETIONS, *pieces)["choices"][0]["logprobs"]
    assert logprobs == {"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0]}


def test_tool_calls_are_put_together_by_their_index() -> None:
    def call(index: int, **function: str) -> dict[str, Any]:
        part: dict[str, Any] = {"index": index, "function": function}
        if "name" in function:
            part |= {"id": f"call-{index}", "type": "function"}
        return {"choices": [{"index": 0, "delta": {"tool_calls": [part]}}]}

    message = whole(
        Route.CHAT,
        call(0, name="f", arguments='{"a"'),
        call(1, name="g", arguments=""),
        call(0, arguments=":1}"),
    )["choices"][0]["message"]
    first, second = message["tool_calls"]
    assert first["function"] == {"name": "f", "arguments": '{"a":1}'}
    assert (second["id"], second["type"]) == ("call-1", "function")
    assert message["content"] is None
