"""Reading requests and writing answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from punctual_model_server.errors import ApiError
from punctual_model_server.openai import Completion, Limits, Writer, parse_completion
from punctual_model_server.tokenizer import ByteTokenizer

LIMITS = Limits("gpt2-tiny", 64, 257)


def parse(body: Any) -> Completion:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_completion(raw, LIMITS, ByteTokenizer(256))


def refusal(body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse(body)
    return caught.value


def test_a_bare_prompt_gets_the_defaults_of_the_api() -> None:
    assert parse({"prompt": "hi"}) == Completion(
        [104, 105], 16, 1.0, 1.0, None, (), False, False, False, False
    )


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("a", [97]),
        (["a"], [97]),
        ([1, 2], [1, 2]),
        ([[1, 2]], [1, 2]),
        ("", [256]),
        ("é", [195, 169]),
    ],
)
def test_a_prompt_is_text_or_ids_or_one_of_these_in_a_list(prompt: Any, ids: list[int]) -> None:
    assert parse({"prompt": prompt}).prompt == ids


def test_every_option_is_read() -> None:
    parsed = parse(
        {
            "model": "gpt2-tiny",
            "prompt": "x",
            "max_tokens": 5,
            "temperature": 0,
            "top_p": 0.5,
            "seed": -7,
            "stop": "end",
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
            "return_token_ids": True,
            "n": 1,
            "logprobs": None,
            "user": "ignored",
        }
    )
    assert parsed == Completion([120], 5, 0.0, 0.5, -7, ("end",), True, True, True, True)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 257]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 2.0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 1 << 63}, "seed"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": [3]}, "stop"),
        ({"stop": {}}, "stop"),
        ({"stop": "x" * 257}, "stop"),
        ({"stream": 1}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": "yes"}}, "include_usage"),
        ({"ignore_eos": "no"}, "ignore_eos"),
        ({"n": 2}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"echo": True}, "echo"),
        ({"logprobs": 5}, "logprobs"),
        ({"suffix": "s"}, "suffix"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"model": 5}, "model"),
    ],
)
def test_a_wrong_value_is_a_400_that_names_the_parameter(
    changes: dict[str, Any], param: str
) -> None:
    error = refusal({"prompt": "x"} | changes)
    assert (error.status, error.kind, error.param) == (400, "invalid_request_error", param)
    assert "must be" in error.message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"prompt": NaN}',
        b'{"prompt": "x", "temperature": Infinity}',
        b'{"prompt": "\\ud800"}',
        b'{"prompt": "\xff"}',
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_no_json_object_is_a_400(body: bytes) -> None:
    error = refusal(body)
    assert (error.status, error.code) == (400, "invalid_json")


def test_a_number_beyond_floats_is_refused() -> None:
    assert refusal(b'{"prompt": "x", "temperature": 1e999}').status == 400


def test_another_model_is_a_404() -> None:
    error = refusal({"model": "gpt4", "prompt": "x"})
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")


def test_prompt_and_answer_must_fit_the_context() -> None:
    assert parse({"prompt": [1] * 60, "max_tokens": 4}).max_tokens == 4
    error = refusal({"prompt": [1] * 60, "max_tokens": 5})
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "max_tokens")
    assert refusal({"prompt": [1] * 64}).param == "prompt"


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized() -> None:
    error = refusal({"prompt": "x" * 10_000})
    assert error.code == "context_length_exceeded"
    assert "10000 characters" in error.message


def test_a_long_wrong_value_is_shown_shortened() -> None:
    assert len(refusal({"prompt": "x", "stop": [list(range(1000))]}).message) < 200


def chunk_of(raw: bytes) -> dict[str, Any]:
    assert raw.startswith(b"data: ")
    assert raw.endswith(b"\n\n")
    parsed: dict[str, Any] = json.loads(raw[6:])
    return parsed


def test_a_chunk_carries_text_and_at_the_end_the_reason() -> None:
    writer = Writer("cmpl-1", "m", include_usage=False, token_ids=False)
    middle, last = chunk_of(writer.chunk('a"\n', 5, None)), chunk_of(writer.chunk("", 6, "length"))
    assert middle["choices"] == [
        {"index": 0, "logprobs": None, "text": 'a"\n', "finish_reason": None}
    ]
    assert last["choices"][0]["finish_reason"] == "length"
    assert (middle["id"], middle["object"], middle["model"]) == ("cmpl-1", "text_completion", "m")
    assert "usage" not in middle


def test_token_ids_and_usage_are_there_when_asked_for() -> None:
    writer = Writer("cmpl-1", "m", include_usage=True, token_ids=True)
    chunk = chunk_of(writer.chunk("a", 5, None))
    assert chunk["choices"][0]["token_ids"] == [5]
    assert chunk["usage"] is None
    usage = chunk_of(writer.usage_chunk(3, 2))
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_a_whole_answer_has_text_reason_and_usage() -> None:
    writer = Writer("cmpl-1", "m", include_usage=False, token_ids=True)
    whole = json.loads(writer.whole("ab", [1, 2], "stop", 4))
    assert whole["choices"][0]["text"] == "ab"
    assert whole["choices"][0]["token_ids"] == [1, 2]
    assert whole["usage"]["total_tokens"] == 6
