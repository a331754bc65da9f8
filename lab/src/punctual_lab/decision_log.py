"""Reads decision logs: files that `punctual-gateway --decision-log` wrote, or a log collector's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from punctual_admission.recording.recorder import Line


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a log, the older file `PATH.1` first where there is one.

    Lines that are not of a decision log (other output in the same stream, or one that was cut off)
    are left out: what they took away shows at the next checkpoint.
    """
    older = path.with_name(path.name + ".1")
    for one in (older, path) if older.exists() else (path,):
        with one.open("rb") as file:
            for text in file:
                line = _parse(text)
                if line is not None:
                    yield line


def _parse(text: bytes) -> Line | None:
    try:
        line: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return line if isinstance(line, dict) and "t" in line else None
