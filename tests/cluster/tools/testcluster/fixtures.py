"""Fixtures for tests on a cluster; a conftest.py imports the names it wants to offer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as kube
from kubernetes import config as kube_config
from kubernetes.dynamic import DynamicClient

from testcluster.audit import AuditLog
from testcluster.binaries import MissingProgramsError
from testcluster.cluster import Cluster, user_cluster
from testcluster.control_plane import ControlPlane
from testcluster.kubectl import Kubectl
from testcluster.wire import Wire

Rules = list[dict[str, list[str]]]
AccountKubeconfig = Callable[..., Path]


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The test run's own control plane, also when KUBECONFIG names another cluster.

    For tests that restart or freeze the API server, or count what was asked of it.
    """
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        plane.start()
    except (MissingProgramsError, RuntimeError) as error:
        pytest.fail(f"no control plane for the tests: {error}", pytrace=False)
    try:
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The cluster that KUBECONFIG names, else the test run's own control plane."""
    folder = tmp_path_factory.mktemp("kubeconfigs")
    try:
        theirs = user_cluster(folder)
    except (MissingProgramsError, RuntimeError) as error:
        pytest.fail(str(error), pytrace=False)
    if theirs is not None:
        return theirs
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return Cluster(plane.kubeconfig, folder, plane)


@pytest.fixture(scope="session")
def pod_cluster(cluster: Cluster) -> Cluster:
    """Like `cluster`, which must run pods; `make kind-up` makes one and prints its KUBECONFIG."""
    if not cluster.ready_nodes():
        pytest.fail(
            f"the cluster at {cluster.server} must have a node that is Ready to run pods; "
            "`make kind-up` creates one and prints the KUBECONFIG to export",
            pytrace=False,
        )
    return cluster


@pytest.fixture(scope="session")
def own_cluster(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Like `cluster`, always on the test run's own control plane."""
    folder = tmp_path_factory.mktemp("kubeconfigs")
    return Cluster(control_plane.kubeconfig, folder, control_plane)


@pytest.fixture(scope="session")
def audit(control_plane: ControlPlane) -> AuditLog:
    """What is asked of the own control plane: `with audit.recording(user=...) as requests:`."""
    return control_plane.audit


@pytest.fixture
def namespace(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own, deleted after it."""
    yield from _own_namespace(request, cluster)


@pytest.fixture
def own_namespace(request: pytest.FixtureRequest, own_cluster: Cluster) -> Iterator[str]:
    """A namespace of the test's own on `own_cluster`."""
    yield from _own_namespace(request, own_cluster)


@pytest.fixture
def kubectl(cluster: Cluster, namespace: str) -> Kubectl:
    """kubectl as the administrator in the test's namespace."""
    return cluster.kubectl(namespace)


@pytest.fixture
def kubernetes_client(cluster: Cluster) -> Iterator[kube.ApiClient]:
    """The administrator's client of the `kubernetes` package, for its typed APIs."""
    settings = kube.Configuration()
    kube_config.load_kube_config(config_file=str(cluster.kubeconfig), client_configuration=settings)
    with kube.ApiClient(settings) as client:
        yield client


@pytest.fixture
def dynamic_client(kubernetes_client: kube.ApiClient, tmp_path: Path) -> DynamicClient:
    """The same client for any kind of object, with its discovery cache in the test's folder."""
    return DynamicClient(kubernetes_client, cache_file=str(tmp_path / "discovery.json"))


@pytest.fixture
def account_kubeconfig(cluster: Cluster, namespace: str) -> Iterator[AccountKubeconfig]:
    """Make a ServiceAccount and return its kubeconfig.

    `account_kubeconfig("reader", rules=[...], cluster_rules=[...])` gives it a Role in the test's
    namespace, a ClusterRole, or neither for an account that exists with rights of its own.
    """
    kubectl = cluster.kubectl(namespace)
    made: list[str] = []

    def make(name: str, *, rules: Rules | None = None, cluster_rules: Rules | None = None) -> Path:
        kubectl.apply(account_manifests(namespace, name, rules, cluster_rules))
        if cluster_rules:
            made.append(f"{namespace}-{name}")
        return cluster.account_kubeconfig(namespace, name)

    yield make
    for name in made:
        kubectl("delete", f"clusterrole/{name}", f"clusterrolebinding/{name}")


@pytest.fixture
def wire(own_cluster: Cluster) -> Iterator[Wire]:
    """A way to the own API server that the test can cut or freeze; `wire.server` is its URL."""
    wire = Wire(own_cluster.server)
    yield wire
    wire.close()


def account_manifests(
    namespace: str, name: str, rules: Rules | None, cluster_rules: Rules | None
) -> list[dict[str, Any]]:
    """Return a ServiceAccount with its Role and ClusterRole, as far as rules are given."""
    account = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    found: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    ]
    for kind, wanted, role in (
        ("Role", rules, name),
        ("ClusterRole", cluster_rules, f"{namespace}-{name}"),
    ):
        if wanted:
            head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": role}}
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
            found.append({**head, "kind": kind, "rules": wanted})
            found.append(
                {**head, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [account]}
            )
    return found


def _own_namespace(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    name = cluster.create_namespace(request.node.name.removeprefix("test_"))
    yield name
    cluster.delete_namespace(name)
