"""Where the programs of the test cluster are: built once by `tools/build` into a cache folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

TOOLS = Path(__file__).resolve().parent.parent
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class MissingProgramsError(RuntimeError):
    """A program of the test cluster is not on this machine. The message says how to get it."""


def versions() -> dict[str, str]:
    """Return the pinned upstream versions, such as `{"KUBERNETES_VERSION": "1.37.2"}`."""
    lines = (TOOLS / "versions").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def cache_folder() -> Path:
    """Return the folder of this Kubernetes version: `$PUNCTUAL_CACHE/cluster/<version>`."""
    root = os.environ.get("PUNCTUAL_CACHE") or Path.home() / ".cache" / "punctual"
    return Path(root) / "cluster" / versions()["KUBERNETES_VERSION"]


def program_folder() -> Path:
    """Return the folder of the programs; `PUNCTUAL_CLUSTER_BIN` names ready-made ones instead."""
    chosen = os.environ.get("PUNCTUAL_CLUSTER_BIN")
    return Path(chosen) if chosen else cache_folder() / "bin"


def control_plane_programs() -> dict[str, Path]:
    """Return the path of each program of a control plane, or raise `MissingProgramsError`."""
    folder = program_folder()
    paths = {name: folder / name for name in CONTROL_PLANE}
    missing = [name for name, path in paths.items() if not os.access(path, os.X_OK)]
    if missing:
        raise MissingProgramsError(
            f"the test cluster's programs must be in {folder}; missing: {', '.join(missing)}. "
            "`make cluster-build` builds them (Go 1.26, about 25 minutes the first time); "
            "PUNCTUAL_CLUSTER_BIN=FOLDER takes ready-made ones; "
            "KUBECONFIG=FILE runs the tests on a cluster of yours; "
            "`make test SUITE=unit` needs no cluster."
        )
    return paths


def kubectl_program() -> Path:
    """Return the kubectl of the cache, else the one on PATH, or raise `MissingProgramsError`."""
    built = program_folder() / "kubectl"
    if os.access(built, os.X_OK):
        return built
    found = shutil.which("kubectl")
    if found:
        return Path(found)
    raise MissingProgramsError(
        f"kubectl must be on PATH or in {built.parent}; `make cluster-build` builds it."
    )
