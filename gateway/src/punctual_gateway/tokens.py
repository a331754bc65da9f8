"""How many tokens a text has: counted with the model's tokenizer, or estimated from its bytes.

Without a tokenizer a text counts one token for four ASCII bytes and one for each other byte. For
English prose that is 1.0 of what GPT-2's vocabulary needs, for code and JSON 0.55, French 0.75,
Chinese 1.4; with a vocabulary of 200,000 about 1.2, 0.8 to 1.1, 1.1 and 3.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from tokenizers import ByteLevelBPETokenizer, Tokenizer

ASCII_BYTES_PER_TOKEN = 4
LONGEST_COUNTED = 32_768
"""Bytes of a request's texts; counting more would hold up every other request: estimated."""
MESSAGE_TOKENS = 4
"""What a chat template adds to each message."""
REPLY_TOKENS = 3
"""What it adds once, to begin the answer."""
OTHER_PART_TOKENS = 1024
"""For a part of a message that is no text."""


class TokenizerError(ValueError):
    """The tokenizer cannot be loaded; the message says what was looked for."""


class _Encoder(Protocol):
    def encode_batch(self, texts: list[str], /) -> list[Any]:
        """The encodings of texts, with their `ids`."""
        ...


class TokenCounter:
    """Counts or estimates tokens."""

    def __init__(self, encoder: _Encoder | None = None) -> None:
        self._encoder = encoder

    @property
    def counts(self) -> bool:
        """Whether there is a tokenizer."""
        return self._encoder is not None

    def text(self, text: str) -> tuple[int, bool]:
        """Tokens of `text`, and whether that is exact."""
        return self._count([text])

    def messages(self, messages: list[dict[str, Any]]) -> int:
        """Tokens of a chat, about: what the pod's template adds is not known here."""
        parts = [part for message in messages for part in _parts(message.get("content"))]
        texts = [part for part in parts if part is not None]
        others = OTHER_PART_TOKENS * (len(parts) - len(texts))
        return REPLY_TOKENS + MESSAGE_TOKENS * len(messages) + others + self._count(texts)[0]

    def _count(self, texts: list[str]) -> tuple[int, bool]:
        if self._encoder is None or sum(map(_size, texts)) > LONGEST_COUNTED:
            return sum(map(estimate, texts)), False
        return sum(len(one.ids) for one in self._encoder.encode_batch(texts)), True


def _parts(content: object) -> list[str | None]:
    """The texts of a message; None for each part that is none."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    texts = [part.get("text") if isinstance(part, dict) else None for part in content]
    return [text if isinstance(text, str) else None for text in texts]


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def estimate(text: str) -> int:
    """Tokens of a text by its bytes; how far off for what is said above."""
    total = _size(text)
    if text.isascii():
        return -(-total // ASCII_BYTES_PER_TOKEN)
    ascii_bytes = len(text.encode("ascii", "ignore"))
    return -(-ascii_bytes // ASCII_BYTES_PER_TOKEN) + total - ascii_bytes


def load_counter(path: Path | None) -> TokenCounter:
    """A counter for a `tokenizer.json`, or a folder with one or with GPT-2's two files.

    Raises TokenizerError. None gives a counter that estimates.
    """
    if path is None:
        return TokenCounter()
    try:
        return TokenCounter(_load(path))
    except Exception as error:
        # tokenizers raises plain Exception for files it cannot use.
        raise TokenizerError(f"the tokenizer {path} must be readable: {error}") from error


def _load(path: Path) -> _Encoder:
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.exists():
        encoder: _Encoder = Tokenizer.from_file(str(file))
        return encoder
    vocabulary, merges = path / "vocab.json", path / "merges.txt"
    if vocabulary.exists() and merges.exists():
        pair: _Encoder = ByteLevelBPETokenizer(str(vocabulary), str(merges))
        return pair
    raise FileNotFoundError("no tokenizer.json and no vocab.json with merges.txt there")
