"""What later tests rely on: the API server and its controllers are real ones."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client as kube
from kubernetes.dynamic import DynamicClient

from testcluster.audit import AuditLog
from testcluster.cluster import Cluster
from testcluster.control_plane import ControlPlane
from testcluster.fixtures import AccountKubeconfig
from testcluster.kubectl import Kubectl, KubectlError
from testcluster.waiting import wait_until
from testcluster.wire import Wire

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["low", "high"],
            "properties": {
                "low": {"type": "integer", "minimum": 0},
                "high": {"type": "integer", "maximum": 100},
                "mode": {"type": "string", "default": "Predictive", "maxLength": 20},
            },
            "x-kubernetes-validations": [
                {"rule": "self.low <= self.high", "message": "`low` must not exceed `high`"}
            ],
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "ranges.smoke.punctual.dev"},
    "spec": {
        "group": "smoke.punctual.dev",
        "scope": "Namespaced",
        "names": {"plural": "ranges", "singular": "range", "kind": "Range"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": SCHEMA},
                "subresources": {"status": {}},
            }
        ],
    },
}
READ_CONFIG = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]


def range_object(low: int, high: int) -> dict[str, Any]:
    return {
        "apiVersion": "smoke.punctual.dev/v1",
        "kind": "Range",
        "metadata": {"name": "one"},
        "spec": {"low": low, "high": high},
    }


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def deployment(replicas: int = 1) -> dict[str, Any]:
    container = {"name": "main", "image": "example.invalid/none:1"}
    labels = {"app": "smoke"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "smoke"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


@pytest.fixture(scope="module")
def ranges(cluster: Cluster) -> Iterator[None]:
    """A custom resource with bounds, a default and a CEL rule."""
    kubectl = cluster.kubectl()
    kubectl.apply(CRD)
    kubectl("wait", "--for=condition=Established", "crd/ranges.smoke.punctual.dev")
    wait_until(
        lambda: "ranges" in kubectl("api-resources", "--api-group=smoke.punctual.dev"),
        "the new resource is served",
    )
    yield
    kubectl("delete", "crd", "ranges.smoke.punctual.dev", "--wait=false")


def test_schema_bounds_and_defaults_are_enforced(ranges: None, kubectl: Kubectl) -> None:
    kubectl.apply(range_object(1, 2))
    assert kubectl.json("get", "range", "one")["spec"]["mode"] == "Predictive"
    assert "less than or equal to 100" in kubectl.refusal(range_object(1, 101))


def test_cel_rule_refuses_with_its_message(ranges: None, kubectl: Kubectl) -> None:
    assert "`low` must not exceed `high`" in kubectl.refusal(range_object(3, 2))


def test_status_is_written_apart_from_spec(ranges: None, kubectl: Kubectl) -> None:
    kubectl.apply(range_object(1, 2))
    before = kubectl.json("get", "range", "one")["metadata"]["generation"]
    kubectl(
        "patch", "range", "one", "--subresource=status", "--type=merge", "-p", '{"status":{"x":1}}'
    )
    after = kubectl.json("get", "range", "one")
    assert (after["status"], after["metadata"]["generation"]) == ({"x": 1}, before)


def test_server_side_apply_keeps_what_another_manager_owns(
    dynamic_client: DynamicClient, kubectl: Kubectl, namespace: str
) -> None:
    maps = dynamic_client.resources.get(api_version="v1", kind="ConfigMap")
    for manager, data in (("one", {"a": "1"}), ("two", {"b": "2"}), ("one", {"c": "3"})):
        maps.server_side_apply(
            config_map("shared", **data), namespace=namespace, field_manager=manager
        )
    assert kubectl.json("get", "configmap", "shared")["data"] == {"b": "2", "c": "3"}


def test_server_side_apply_conflicts_until_forced(kubectl: Kubectl) -> None:
    kubectl.apply(config_map("shared", a="1"), "--field-manager=one")
    with pytest.raises(KubectlError, match="conflict"):
        kubectl.apply(config_map("shared", a="2"), "--field-manager=two")
    kubectl.apply(config_map("shared", a="2"), "--field-manager=two", "--force-conflicts")
    assert kubectl.json("get", "configmap", "shared")["data"] == {"a": "2"}


def test_events_are_stored_and_read(
    kubernetes_client: kube.ApiClient, kubectl: Kubectl, namespace: str
) -> None:
    kubectl("create", "configmap", "subject")
    subject = kubectl.json("get", "configmap", "subject")["metadata"]
    kube.CoreV1Api(kubernetes_client).create_namespaced_event(
        namespace,
        {
            "metadata": {"generateName": "smoke-"},
            "involvedObject": {
                "kind": "ConfigMap",
                "name": "subject",
                "namespace": namespace,
                "uid": subject["uid"],
            },
            "reason": "SmokeSeen",
            "message": "seen",
            "type": "Normal",
        },
    )
    assert [event["message"] for event in kubectl.events("SmokeSeen")] == ["seen"]


def test_owner_reference_removes_the_child(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "parent")
    parent = kubectl.json("get", "configmap", "parent")["metadata"]
    child = config_map("child")
    child["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": parent["uid"]}
    ]
    kubectl.apply(child)
    kubectl("delete", "configmap", "parent")
    wait_until(
        lambda: "child" not in kubectl("get", "configmaps", "-o", "name"), "the child is gone"
    )


def test_deployment_makes_its_pods(kubectl: Kubectl) -> None:
    kubectl.apply(deployment(replicas=2))
    pods = wait_until(
        lambda: len(kubectl("get", "pods", "-l", "app=smoke", "-o", "name").split()) == 2,
        "both pods exist",
    )
    assert pods


def test_quota_shows_as_an_event_on_the_replica_set(kubectl: Kubectl) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    kubectl.apply(quota)
    wait_until(
        lambda: "hard" in kubectl.json("get", "resourcequota", "none").get("status", {}),
        "the quota is in force",
    )
    kubectl.apply(deployment())
    events = wait_until(lambda: kubectl.events("FailedCreate"), "the refusal is an event")
    assert "exceeded quota" in events[-1]["message"]


def test_token_of_an_account_has_the_rights_of_its_role_only(
    account_kubeconfig: AccountKubeconfig, namespace: str
) -> None:
    reader = Kubectl(account_kubeconfig("reader", rules=READ_CONFIG), namespace)
    assert "kube-root-ca.crt" in reader("get", "configmaps", "-o", "name")
    for arguments in (["get", "secrets"], ["get", "configmaps", "--all-namespaces"]):
        with pytest.raises(KubectlError, match="forbidden"):
            reader(*arguments)


def test_token_of_an_account_has_the_rights_of_its_cluster_role(
    account_kubeconfig: AccountKubeconfig, namespace: str
) -> None:
    reader = Kubectl(account_kubeconfig("reader", cluster_rules=READ_CONFIG), namespace)
    assert "kube-root-ca.crt" in reader("get", "configmaps", "--all-namespaces")


def test_each_test_has_a_namespace_of_its_own(cluster: Cluster, namespace: str) -> None:
    other = cluster.create_namespace("Other One!")
    cluster.delete_namespace(other)
    assert other != namespace
    assert other.startswith("other-one-")


def test_audit_log_counts_requests_per_object(
    own_cluster: Cluster, own_namespace: str, audit: AuditLog
) -> None:
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl("create", "serviceaccount", "counted")
    user = f"system:serviceaccount:{own_namespace}:counted"
    counted = Kubectl(own_cluster.account_kubeconfig(own_namespace, "counted"), own_namespace)
    with audit.recording(user=user) as requests:
        kubectl("get", "configmap", "kube-root-ca.crt")
        for _ in range(2):
            with pytest.raises(KubectlError, match="forbidden"):
                counted("get", "configmap", "kube-root-ca.crt")
    assert requests.by_object()["get", f"{own_namespace}/configmaps/kube-root-ca.crt"] == 2
    assert {request.user for request in requests.requests} == {user}
    assert requests.count(resource="configmaps") == 2


@pytest.mark.parametrize("kill", [False, True])
def test_api_server_restart_keeps_objects_and_address(
    own_cluster: Cluster, own_namespace: str, control_plane: ControlPlane, kill: bool
) -> None:
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl.apply(config_map("kept", a="1"))
    control_plane.stop_api_server(kill=kill)
    with pytest.raises(KubectlError, match="refused"):
        kubectl("get", "configmap", "kept")
    control_plane.start_api_server()
    assert kubectl.json("get", "configmap", "kept")["data"] == {"a": "1"}


def test_frozen_api_server_answers_nothing_until_it_goes_on(
    own_cluster: Cluster, control_plane: ControlPlane
) -> None:
    kubectl = own_cluster.kubectl()
    control_plane.pause_api_server()
    try:
        with pytest.raises(KubectlError):
            kubectl("get", "namespaces", "--request-timeout=1s")
    finally:
        control_plane.resume_api_server()
    assert "default" in kubectl("get", "namespaces", "-o", "name")


@contextmanager
def watching(own_cluster: Cluster, namespace: str, wire: Wire) -> Iterator[subprocess.Popen[str]]:
    """Give a kubectl that watches ConfigMaps by the wire, once its watch is open."""
    kubeconfig = own_cluster.admin_kubeconfig(server=wire.server)
    command = [own_cluster.kubectl().program, "-n", namespace, "get", "configmaps"]
    watch = subprocess.Popen(
        [*command, "--watch", "-o", "name"],
        env={"KUBECONFIG": str(kubeconfig), "HOME": str(kubeconfig.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert watch.stdout is not None
    try:
        assert "kube-root-ca.crt" in watch.stdout.readline()
        # what is made after the list comes by the watch, which kubectl opens as a second request
        own_cluster.kubectl(namespace)("create", "configmap", "opened")
        assert "opened" in watch.stdout.readline()
        yield watch
    finally:
        watch.kill()
        watch.wait()
        watch.stdout.close()


def test_cut_wire_ends_a_watch(own_cluster: Cluster, own_namespace: str, wire: Wire) -> None:
    with watching(own_cluster, own_namespace, wire) as watch:
        assert wire.cut() >= 1
        assert watch.wait(20) == 0
    kubectl = Kubectl(own_cluster.admin_kubeconfig(server=wire.server), "default")
    assert "default" in kubectl("get", "namespaces", "-o", "name")


def test_frozen_wire_leaves_a_watch_open_and_silent(
    own_cluster: Cluster, own_namespace: str, wire: Wire
) -> None:
    kubectl = Kubectl(own_cluster.admin_kubeconfig(server=wire.server), "default")
    with watching(own_cluster, own_namespace, wire) as watch:
        assert wire.freeze() >= 1
        own_cluster.kubectl(own_namespace)("create", "configmap", "unseen")
        with pytest.raises(KubectlError):
            kubectl("get", "namespaces", "--request-timeout=1s")
        wire.restore()
        assert "default" in kubectl("get", "namespaces", "-o", "name")
        assert watch.poll() is None
        watch.kill()
        assert watch.stdout is not None
        assert watch.stdout.read() == ""


def test_two_control_planes_run_side_by_side(control_plane: ControlPlane, tmp_path: Path) -> None:
    other = ControlPlane(tmp_path)
    other.start()
    try:
        assert other.port != control_plane.port
        names = Kubectl(other.kubeconfig, "default")("get", "namespaces", "-o", "name")
        assert "namespace/default" in names
        assert len(other.programs_running) == 4
    finally:
        other.stop()
    assert other.programs_running == []
