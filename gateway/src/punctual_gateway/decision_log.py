"""The decision log of this process: lines of JSON to a file or to standard output.

The event loop only turns a line into bytes; a thread of its own writes, so a slow disk never holds
up a decision. What cannot be written soon enough is dropped and counted, and the log goes on with
a checkpoint that says so. A file that has grown to its limit is kept as `FILE.1`, in place of the
one before it, and the new one begins with a checkpoint: two files at most, each of them readable
by itself.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections import deque
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

WRITE_EVERY = 0.1
"""Seconds between two looks at what there is to write."""
MOST_BUFFERED = 16_777_216
"""Bytes that may wait for the thread."""
RESUME_AFTER = 1.0
"""Seconds without a checkpoint before one may end a gap."""


class DecisionLog:
    """A sink for a recording ledger. `path` None: standard output.

    `limit` is in bytes: a file is changed for a new one, and standard output gets a checkpoint,
    each time so much has been written.
    """

    def __init__(self, path: Path | None, limit: int, buffer: int = MOST_BUFFERED) -> None:
        self.lines = 0
        """Lines taken."""
        self.dropped = 0
        """Lines lost."""
        self.problem: str | None = None
        """Why the last attempt to write failed."""
        self._path = path
        self._limit = limit
        self._buffer = buffer
        self._waiting: deque[tuple[bytes, bool]] = deque()
        """Lines with whether each is a checkpoint."""
        self._size = 0
        self._taken = 0
        """Bytes put into the buffer, and bytes taken out of it, since the start."""
        self._gap = 0
        """Lines lost since the last checkpoint."""
        self._full = False
        self._resume_at = 0.0
        self._written = 0
        """Bytes in the present file."""
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="decision log", daemon=True)
        self._thread.start()

    @property
    def checkpoint_due(self) -> bool:
        """Whether a file is full, or a gap can end."""
        if self._gap:
            return not self._waiting and time.monotonic() >= self._resume_at
        return self._full

    def put(self, line: dict[str, Any]) -> None:
        """Take a line, or drop it when too much waits."""
        checkpoint = "checkpoint" in line
        if self._gap and not checkpoint:
            self._lose(1)
            return
        if checkpoint:
            line["wall"], line["version"] = time.time(), version("punctual_admission")
            self._full = False
            if self._gap:
                line["dropped"] = self._gap
        data = orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
        if self._size - self._taken + len(data) > self._buffer:
            self._lose(1)
            return
        if checkpoint and self._gap:
            with self._lock:
                self._gap -= line["dropped"]
        self.lines += 1
        self._size += len(data)
        self._waiting.append((data, checkpoint))

    def close(self) -> None:
        """Write what waits, at most for a second, and end."""
        self._ending.set()
        self._thread.join(1.0)

    def _lose(self, lines: int) -> None:
        with self._lock:
            self.dropped += lines
            self._gap += lines
        self._resume_at = time.monotonic() + RESUME_AFTER

    # --- the thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            ending = self._ending.wait(WRITE_EVERY)
            try:
                self._write_all()
                self.problem = None
            except OSError as error:
                self._fail(error)
            if ending:
                self._shut()
                return

    def _write_all(self) -> None:
        """Write what waits, into a new file behind a full one."""
        file = self._file or self._open()
        while self._waiting:
            data, checkpoint = self._waiting[0]
            if checkpoint and self._written >= self._limit:
                file = self._change()
            file.write(data)
            self._waiting.popleft()
            self._taken += len(data)
            self._full = self._full or self._written < self._limit <= self._written + len(data)
            self._written += len(data)
        file.flush()

    def _open(self) -> BinaryIO:
        if self._path is None:
            self._file = open(sys.stdout.fileno(), "wb", closefd=False)  # noqa: SIM115  # `_shut`
            return self._file
        self._file = self._path.open("ab")
        self._written = self._file.tell()
        if self._written:
            # what is there may end within a line
            self._file.write(b"\n")
        return self._file

    def _change(self) -> BinaryIO:
        self._written = 0
        if self._path is None:
            return self._file or self._open()
        self._shut()
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        return self._open()

    def _shut(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _fail(self, error: Exception) -> None:
        """Give up what waits: it is the beginning of a gap."""
        lost = 0
        while self._waiting:
            data, _ = self._waiting.popleft()
            self._taken += len(data)
            lost += 1
        self._lose(lost)
        with contextlib.suppress(OSError):
            self._shut()
        if self.problem is None:
            log.error("the decision log cannot be written: %s", error)
        self.problem = str(error)
