"""The operator on the test run's own control plane."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from operatorstand.kubelet import Kubelet
from operatorstand.objects import install
from operatorstand.process import OperatorProcess, StartOperator
from testcluster.cluster import Cluster
from testcluster.kubectl import Kubectl


@pytest.fixture(scope="session")
def installed(own_cluster: Cluster) -> Cluster:
    """The own control plane with the custom resource definition and the operator's rights."""
    install(own_cluster)
    return own_cluster


@pytest.fixture(scope="module")
def operator(
    installed: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """An operator that runs for all tests of a module, and looks again soon at what is wrong."""
    process = OperatorProcess(installed, tmp_path_factory.mktemp("operator"))
    process.start("--attention-seconds=1")
    yield process
    process.stop()


@pytest.fixture
def start_operator(
    installed: Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartOperator]:
    """Start an operator of the test's own: `start_operator("--resync-seconds=5", server=URL)`.

    It works in the test's namespace, with `everywhere=True` in all.
    """
    started: list[OperatorProcess] = []

    def start(*arguments: str, server: str = "", everywhere: bool = False) -> OperatorProcess:
        process = OperatorProcess(installed, tmp_path_factory.mktemp("operator"), server=server)
        started.append(process)
        scope = [] if everywhere else [f"--namespace={own_namespace}"]
        process.start("--attention-seconds=1", *scope, *arguments)
        return process

    yield start
    for process in started:
        process.stop(kill=True)


@pytest.fixture
def own_kubectl(installed: Cluster, own_namespace: str) -> Kubectl:
    """kubectl as the administrator in a namespace of the test's own."""
    return installed.kubectl(own_namespace)


@pytest.fixture
def kubelet(own_kubectl: Kubectl) -> Iterator[Kubelet]:
    """Runs gateway pods in the test's namespace."""
    found = Kubelet(own_kubectl)
    yield found
    found.close()
