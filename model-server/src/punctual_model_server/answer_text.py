"""The text of an answer: decoding, and stop strings that may span tokens."""

from __future__ import annotations

from collections.abc import Sequence

from punctual_model_server.tokenizer import TextDecoder, Tokenizer


class AnswerText:
    """Feeds on tokens and gives the text that may be shown.

    Text that could be the beginning of a stop string is held back until it is clear; a stop string
    itself is never shown.
    """

    __slots__ = ("_decoder", "_held", "_stops", "stopped")

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str] = ()) -> None:
        self._decoder = TextDecoder(tokenizer)
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def feed(self, token: int) -> str:
        """Return the text to show now; sets `stopped` when a stop string is complete."""
        text = self._decoder.feed(token)
        return self._filter(text) if self._stops else text

    def finish(self) -> str:
        """Return what was held back when the answer ends."""
        if self.stopped:
            return ""
        rest = self._decoder.flush()
        if not self._stops:
            return rest
        return self._end(self._filter(rest))

    def _end(self, shown: str) -> str:
        return shown if self.stopped else shown + self._held

    def _filter(self, text: str) -> str:
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            return self._held[: min(found)]
        keep = self._possible_beginning()
        shown, self._held = (
            self._held[: len(self._held) - keep],
            self._held[len(self._held) - keep :],
        )
        return shown

    def _possible_beginning(self) -> int:
        """Return the length of the longest end of the held text that begins a stop string."""
        longest = min(len(self._held), max(map(len, self._stops)) - 1)
        return next(
            (
                length
                for length in range(longest, 0, -1)
                if any(stop.startswith(self._held[-length:]) for stop in self._stops)
            ),
            0,
        )
