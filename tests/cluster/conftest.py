"""Tests in this folder run on a real API server; see README.md for the fixtures."""

from __future__ import annotations

from pathlib import Path

import pytest

from testcluster.fixtures import (
    account_kubeconfig,
    audit,
    cluster,
    control_plane,
    dynamic_client,
    kubectl,
    kubernetes_client,
    namespace,
    own_cluster,
    own_namespace,
    pod_cluster,
    wire,
)

__all__ = [
    "account_kubeconfig",
    "audit",
    "cluster",
    "control_plane",
    "dynamic_client",
    "kubectl",
    "kubernetes_client",
    "namespace",
    "own_cluster",
    "own_namespace",
    "pod_cluster",
    "wire",
]

HERE = Path(__file__).resolve().parent
OWN = {"audit", "control_plane", "own_cluster", "own_namespace", "wire"}


SECONDS = 300
"""For a test that names no time of its own: several waits, each a minute at most, and before them
up to a minute and a half for controllers that come back from a frozen API server."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that a run without a cluster can leave them out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SECONDS))
            if OWN & set(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.control_plane)
