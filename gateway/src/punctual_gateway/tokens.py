"""How many tokens a text has: counted with the model's tokenizer, or estimated from its bytes.

Without a tokenizer a text counts one token for four ASCII bytes and one for each other byte. That
is above what GPT-2's vocabulary needs for English prose (4.2 to 4.5 bytes a token) and its worst
case elsewhere, so the prefill is rather over- than underestimated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from tokenizers import ByteLevelBPETokenizer, Tokenizer

ASCII_BYTES_PER_TOKEN = 4
LONGEST_COUNTED = 32_768
"""Characters; counting a longer text would hold up every other request, so it is estimated."""
MESSAGE_TOKENS = 4
"""What a chat template adds to each message."""
REPLY_TOKENS = 3
"""What it adds once, to begin the answer."""
OTHER_PART_TOKENS = 1024
"""For a part of a message that is no text."""


class TokenizerError(ValueError):
    """The tokenizer cannot be loaded; the message says what was looked for."""


class _Encoder(Protocol):
    def encode(self, text: str) -> Any:
        """The encoding of one text, with its `ids`."""
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
        if self._encoder is not None and len(text) <= LONGEST_COUNTED:
            return len(self._encoder.encode(text).ids), True
        return estimate(text), False

    def messages(self, messages: list[dict[str, Any]]) -> int:
        """Tokens of a chat, about: what the pod's template adds is not known here."""
        total = REPLY_TOKENS
        for message in messages:
            total += MESSAGE_TOKENS + self._content(message.get("content"))
        return total

    def _content(self, content: object) -> int:
        if isinstance(content, str):
            return self.text(content)[0]
        if not isinstance(content, list):
            return 0
        return sum(self._part(part) for part in content)

    def _part(self, part: object) -> int:
        text = part.get("text") if isinstance(part, dict) else None
        return self.text(text)[0] if isinstance(text, str) else OTHER_PART_TOKENS


def estimate(text: str) -> int:
    """Tokens of a text by its bytes; rather too many than too few."""
    total = len(text.encode("utf-8", "surrogatepass"))
    if text.isascii():
        return -(-total // ASCII_BYTES_PER_TOKEN)
    ascii_bytes = sum(map(str.isascii, text))
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
