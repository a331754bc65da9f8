"""CPU time and memory of a child's whole process group, read from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds used so far and resident bytes now, summed over a process group."""

    cpu_seconds: float
    resident_bytes: int


def read_usage(group: int) -> Usage:
    """Return the usage of all processes of a group; zero for a group that is gone."""
    stats = list(_group_stats(group))
    ticks = sum(int(stat[11]) + int(stat[12]) for stat in stats)
    pages = sum(int(stat[21]) for stat in stats)
    return Usage(ticks / _TICKS, pages * _PAGE)


def _group_stats(group: int) -> Iterator[list[str]]:
    """Yield the fields after the name of /proc/PID/stat: state is 0, pgrp 2, utime 11, rss 21."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            yield fields
