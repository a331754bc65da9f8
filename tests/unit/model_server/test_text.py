"""Tokens to text: characters over several tokens, stop strings over several tokens."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models

from punctual_model_server.answer_text import AnswerText
from punctual_model_server.engine.models import RANDOM, Architecture, ModelError
from punctual_model_server.tokenizer import ByteTokenizer, TextDecoder, Tokenizer, load_tokenizer

BYTES = ByteTokenizer(256)
TINY = RANDOM["random:tiny"]


@cache
def gpt2_tokenizer() -> Tokenizer:
    return load_tokenizer("gpt2", "random:gpt2", RANDOM["random:gpt2"])


@pytest.fixture
def gpt2() -> Tokenizer:
    return gpt2_tokenizer()


def shown(text: bytes, stops: tuple[str, ...]) -> tuple[list[str], AnswerText]:
    answer = AnswerText(BYTES, stops)
    pieces = []
    for byte in text:
        pieces.append(answer.feed(byte))
        if answer.stopped:
            break
    pieces.append(answer.finish())
    return pieces, answer


def test_the_vocabulary_is_the_genuine_one(gpt2: Tokenizer) -> None:
    assert gpt2.encode("Hello world") == [15496, 995]
    assert gpt2.encode("<|endoftext|>") == [50256]


def test_an_empty_text_is_the_end_token(gpt2: Tokenizer) -> None:
    assert gpt2.encode("") == [50256]
    assert BYTES.encode("") == [256]


def test_special_and_unknown_tokens_have_no_text(gpt2: Tokenizer) -> None:
    assert gpt2.token_bytes(50256) == b""
    assert gpt2.token_bytes(99999) == b""
    assert BYTES.token_bytes(256) == b""


@settings(deadline=None)
@given(st.text(max_size=60))
def test_decoding_piece_by_piece_gives_the_text_back(text: str) -> None:
    tokenizer = gpt2_tokenizer()
    decoder = TextDecoder(tokenizer)
    ids = tokenizer.encode(text)
    assert "".join(map(decoder.feed, ids)) + decoder.flush() == text


def test_a_character_appears_with_its_last_token() -> None:
    pieces, _ = shown("é!".encode(), ())
    assert pieces == ["", "é", "!", ""]


def test_an_unfinished_character_at_the_end_is_shown_as_a_replacement() -> None:
    pieces, _ = shown("é".encode()[:1], ())
    assert pieces == ["", "\ufffd"]


def test_a_stop_string_over_tokens_is_found_and_never_shown() -> None:
    pieces, answer = shown(b"one two STOP three", ("STOP",))
    assert "".join(pieces) == "one two "
    assert answer.stopped


def test_text_that_might_begin_a_stop_string_is_held_back_until_it_is_clear() -> None:
    pieces, answer = shown(b"aSTa", ("STOP",))
    assert pieces == ["a", "", "", "STa", ""]
    assert not answer.stopped


def test_what_was_held_back_is_shown_when_the_answer_ends() -> None:
    pieces, _ = shown(b"aST", ("STOP",))
    assert pieces == ["a", "", "", "ST"]


def test_the_earliest_of_several_stop_strings_counts() -> None:
    pieces, _ = shown(b"abcdef", ("ef", "cd"))
    assert "".join(pieces) == "ab"


def test_a_stop_string_that_only_the_replacement_completes_is_found_at_the_end() -> None:
    pieces, answer = shown(b"ok\xc3", ("\ufffd",))
    assert "".join(pieces) == "ok"
    assert answer.stopped


@settings(deadline=None)
@given(
    st.text(alphabet="ab", max_size=30), st.lists(st.text(alphabet="ab", min_size=1, max_size=4))
)
def test_the_shown_text_is_always_the_text_before_the_first_complete_stop(
    text: str, stops: list[str]
) -> None:
    pieces, answer = shown(text.encode(), tuple(stops))
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    seen = text[: min(ends)] if ends else text
    begins = [seen.find(stop) for stop in stops if stop in seen]
    assert "".join(pieces) == (seen[: min(begins)] if begins else text)
    assert answer.stopped == bool(ends)


def test_a_folder_with_tokenizer_files_brings_its_own_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    tokenizer = load_tokenizer("auto", str(tmp_path), Architecture(1, 8, 1, 4))
    assert tokenizer.encode("ab") == [2]
    assert tokenizer.token_bytes(2) == b"ab"


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused() -> None:
    with pytest.raises(ModelError, match="50257 tokens, the model only 257"):
        load_tokenizer("gpt2", "random:tiny", TINY)


def test_a_tokenizer_that_is_not_byte_level_is_refused(tmp_path: Path) -> None:
    tokenizer = HuggingFaceTokenizer(models.WordLevel({"a": 0}, unk_token="a"))  # noqa: S106
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelError, match="byte-level"):
        load_tokenizer(str(tmp_path), "random:tiny", TINY)


def test_unreadable_tokenizer_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=str(tmp_path)):
        load_tokenizer(str(tmp_path), "random:tiny", TINY)


def test_a_model_of_bytes_reads_bytes() -> None:
    assert isinstance(load_tokenizer("auto", "random:tiny", TINY), ByteTokenizer)
