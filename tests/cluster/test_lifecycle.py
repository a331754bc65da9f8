"""The control plane ends with whoever started it, and says what is missing when it cannot start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testcluster.binaries import TOOLS, program_folder
from testcluster.control_plane import ControlPlane
from testcluster.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITE = """
import os, pathlib, signal
from testcluster.fixtures import cluster, control_plane, pod_cluster

def test_waits(control_plane):
    pathlib.Path("folder").write_text(str(control_plane.folder))
    signal.pause()

def test_asks(cluster):
    assert "default" in cluster.kubectl()("get", "namespaces", "-o", "name")

def test_wants_pods(pod_cluster):
    raise RuntimeError("not reached")
"""


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start Python on the kit in a folder, without the caller's KUBECONFIG."""
    kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(TOOLS), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start_pytest(folder: Path, test: str, **variables: str) -> subprocess.Popen[str]:
    """Start pytest on one test of `SUITE`."""
    (folder / "test_it.py").write_text(SUITE)
    base = f"--basetemp={folder / 'base'}"
    options = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=.", base)
    return start(folder, "-m", "pytest", *options, f"test_it.py::{test}", **variables)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A pytest that is inside a test on its control plane."""
    process = start_pytest(tmp_path, "test_waits")
    try:
        wait_until((tmp_path / "folder").exists, "the inner test runs", seconds=60)
        yield process
    finally:
        process.kill()
        process.communicate()


def running(tmp_path: Path) -> list[str]:
    return ControlPlane(Path((tmp_path / "folder").read_text())).programs_running


def test_ctrl_c_stops_the_control_plane(started: subprocess.Popen[str], tmp_path: Path) -> None:
    assert len(running(tmp_path)) == 4
    started.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in started.communicate(timeout=30)[0]
    assert running(tmp_path) == []


def test_killed_test_run_takes_its_control_plane_along(
    started: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert len(running(tmp_path)) == 4
    started.kill()
    wait_until(lambda: running(tmp_path) == [], "no program of the control plane is left")


def test_missing_programs_fail_the_test_and_say_how_to_get_them(tmp_path: Path) -> None:
    process = start_pytest(tmp_path, "test_asks", PUNCTUAL_CLUSTER_BIN=str(tmp_path / "none"))
    output = process.communicate(timeout=60)[0]
    assert process.returncode == pytest.ExitCode.TESTS_FAILED
    assert "missing: etcd, kube-apiserver" in output
    assert "make cluster-build" in output


def test_kubeconfig_without_a_cluster_fails_the_test(tmp_path: Path) -> None:
    named = tmp_path / "no.kubeconfig"
    process = start_pytest(tmp_path, "test_asks", KUBECONFIG=str(named))
    output = process.communicate(timeout=60)[0]
    assert process.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"KUBECONFIG={named} must lead to a cluster" in output


def test_kubeconfig_names_the_cluster_to_test_on(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    kubectl_only = tmp_path / "bin"
    kubectl_only.mkdir()
    (kubectl_only / "kubectl").symlink_to(program_folder() / "kubectl")
    process = start_pytest(
        tmp_path,
        "test_asks",
        KUBECONFIG=str(control_plane.kubeconfig),
        PUNCTUAL_CLUSTER_BIN=str(kubectl_only),
    )
    assert "1 passed" in process.communicate(timeout=60)[0]


def test_cluster_without_nodes_fails_a_test_that_wants_pods(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    process = start_pytest(tmp_path, "test_wants_pods", KUBECONFIG=str(control_plane.kubeconfig))
    output = process.communicate(timeout=60)[0]
    assert process.returncode == pytest.ExitCode.TESTS_FAILED
    assert "must have a node that is Ready" in output
    assert "not reached" not in output


def test_program_that_does_not_come_up_is_named_with_its_log(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in program_folder().iterdir():
        (programs / program.name).symlink_to(program)
    broken = programs / "kube-apiserver"
    broken.unlink()
    broken.write_text("#!/bin/sh\necho no such luck\nexit 1\n")
    broken.chmod(0o755)
    process = start_pytest(tmp_path, "test_asks", PUNCTUAL_CLUSTER_BIN=str(programs))
    output = process.communicate(timeout=60)[0]
    assert process.returncode == pytest.ExitCode.TESTS_FAILED
    assert "kube-apiserver ended" in output
    assert "no such luck" in output


def test_up_leaves_a_control_plane_until_down(tmp_path: Path) -> None:
    def command(word: str) -> str:
        process = start(tmp_path, "-m", "testcluster", "--folder", "plane", word)
        return process.communicate(timeout=90)[0]

    try:
        assert "export KUBECONFIG=" in command("up")
        assert "running: etcd, kube-apiserver" in command("status")
        assert "already up" in command("up")
    finally:
        down = command("down")
    assert "stopped: etcd, kube-apiserver, kube-controller-manager, kube-scheduler" in down
    assert "nothing is running" in command("status")
