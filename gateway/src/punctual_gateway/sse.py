"""Server-sent events from a pod: cut into events, and what each of them says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

DONE = b"[DONE]"
LONGEST_EVENT = 1_048_576
"""Bytes; a pod that sends more without an end of event does not speak this protocol."""


class StreamError(ValueError):
    """The pod's stream is no stream of completion chunks; the message says why."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its bytes as received, and what they mean."""

    raw: bytes
    chunk: dict[str, Any] | None
    """The JSON object; None for the end mark and for comments."""
    done: bool = False

    @property
    def tokens(self) -> int:
        """Tokens it carries: one for a chunk with a choice, more where the pod lists their ids."""
        if self.chunk is None:
            return 0
        choices = self.chunk.get("choices")
        if not choices:
            return 0
        ids = choices[0].get("token_ids")
        if isinstance(ids, list) and ids:
            return len(ids)
        # The first chunk of a chat names the role and carries no token.
        delta = choices[0].get("delta")
        if isinstance(delta, dict) and not any(delta.get(k) for k in delta if k != "role"):
            return 1 if choices[0].get("finish_reason") else 0
        return 1

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ends here, if it does."""
        choices = self.chunk.get("choices") if self.chunk else None
        return choices[0].get("finish_reason") if choices else None

    @property
    def error(self) -> dict[str, Any] | None:
        """The error that the pod reports in its stream, if this is one."""
        error = self.chunk.get("error") if self.chunk else None
        return error if isinstance(error, dict) else None


class EventReader:
    """Collects bytes and gives the complete events among them."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes; raises StreamError for what is none."""
        data = self._rest + data
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        *blocks, self._rest = data.split(b"\n\n")
        if len(self._rest) > LONGEST_EVENT:
            raise StreamError(f"an event must be at most {LONGEST_EVENT} bytes")
        return [parse_event(block) for block in blocks if block.strip()]


def parse_event(block: bytes) -> Event:
    """Parse one event, without the empty line that ends it; raises StreamError."""
    raw = block + b"\n\n"
    data = _data_of(block)
    if data is None:
        return Event(raw, None)
    if data == DONE:
        return Event(raw, None, done=True)
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise StreamError(f"the pod's event must be JSON: {error}") from error
    if not isinstance(chunk, dict) or not _well_formed(chunk):
        raise StreamError("the pod's event must be a completion chunk")
    return Event(raw, chunk)


def _data_of(block: bytes) -> bytes | None:
    if block.startswith(b"data:") and b"\n" not in block:
        return block[5:].strip()
    lines = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
    if lines:
        return b"\n".join(lines)
    if all(line.startswith((b":", b"event:", b"id:", b"retry:")) for line in block.split(b"\n")):
        return None
    raise StreamError("the pod's answer must be a stream of events")


def _well_formed(chunk: dict[str, Any]) -> bool:
    if isinstance(chunk.get("error"), dict):
        return True
    choices = chunk.get("choices")
    return isinstance(choices, list) and all(isinstance(choice, dict) for choice in choices)
