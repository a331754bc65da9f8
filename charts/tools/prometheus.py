"""Prometheus and promtool: which programs, and how to call the latter."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


class PrometheusError(RuntimeError):
    """A program is missing, or promtool refused; the message is its own or says what to do."""


def prometheus_program(name: str) -> Path:
    """`prometheus` or `promtool`: of PUNCTUAL_PROMETHEUS, of PATH, or from `get-prometheus`."""
    cache = Path(os.environ.get("PUNCTUAL_CACHE") or Path.home() / ".cache" / "punctual")
    if folder := os.environ.get("PUNCTUAL_PROMETHEUS"):
        found = Path(folder) / name
    else:
        found = Path(shutil.which(name) or cache / "prometheus" / name)
    if not found.exists():
        raise PrometheusError(
            f"{name} must be at {found}: run `make prometheus`, put it on PATH, or name its folder "
            "by PUNCTUAL_PROMETHEUS"
        )
    return found


def promtool(*arguments: str, seconds: float = 60) -> str:
    """Run promtool and return what it says; raises PrometheusError with that when it refuses."""
    done = subprocess.run(  # noqa: S603  # the program that the caller installed
        [str(prometheus_program("promtool")), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=seconds,
    )
    if done.returncode:
        raise PrometheusError(f"promtool {' '.join(arguments)}:\n{done.stdout.strip()}")
    return done.stdout
