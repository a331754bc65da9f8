"""Helm: which program, and how to call it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

VERSIONS = Path(__file__).with_name("versions")


class HelmError(RuntimeError):
    """Helm is missing, or refused; the message is Helm's or says what to do."""


def helm_program() -> Path:
    """The Helm that `charts/tools/build-helm` makes, or the one of PUNCTUAL_HELM."""
    if named := os.environ.get("PUNCTUAL_HELM"):
        return Path(named)
    cache = Path(os.environ.get("PUNCTUAL_CACHE") or Path.home() / ".cache" / "punctual")
    program = cache / "helm" / helm_version() / "helm"
    if not program.exists():
        raise HelmError(
            f"Helm {helm_version()} must be at {program}: run `make helm`, or name "
            "another one by PUNCTUAL_HELM"
        )
    return program


def helm_version() -> str:
    """The pinned version."""
    return VERSIONS.read_text().strip().removeprefix("HELM_VERSION=")


def helm(*arguments: str, kubeconfig: Path | None = None, seconds: float = 300) -> str:
    """Run Helm and return its output; raises HelmError with what it says."""
    environment = os.environ | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})
    done = subprocess.run(  # noqa: S603  # the program that the caller installed
        [str(helm_program()), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env=environment,
    )
    if done.returncode:
        raise HelmError(f"helm {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
