"""The operator comes, goes, crashes and loses the API server; the policies do not mind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from operatorstand.kubelet import Kubelet, usable_pod
from operatorstand.objects import (
    conditions,
    endpoint_slice,
    exists,
    install,
    policy,
    service,
    wait_children,
    wait_reason,
)
from operatorstand.process import ACCOUNT, USER, OperatorProcess, StartOperator
from punctual_operator.rbac import RULES
from testcluster.audit import AuditLog, Recording
from testcluster.cluster import Cluster
from testcluster.control_plane import ControlPlane
from testcluster.fixtures import account_manifests
from testcluster.kubectl import Kubectl, KubectlError, Manifest
from testcluster.waiting import wait_until
from testcluster.wire import Wire

WRITES = ("create", "patch", "update", "delete")


@contextmanager
def recording(audit: AuditLog) -> Iterator[Recording]:
    """Record what the operator asks of the API server."""
    with audit.recording(user=USER) as requests:
        yield requests


def writes(requests: Recording, namespace: str) -> list[str]:
    return [
        f"{one.verb} {one.target}"
        for one in requests.requests
        if one.verb in WRITES and one.namespace == namespace
    ]


def settle(kubectl: Kubectl, *names: str) -> None:
    """Wait until each policy has all that it can have without pods."""
    for name in names or ("gpt2",):
        wait_children(kubectl, name)
        wait_until(
            lambda name=name: len(conditions(kubectl, name)) == 6,  # type: ignore[misc]
            f"the status of {name} is complete",
        )


def test_settled_policy_costs_no_request_when_the_operator_restarts(
    start_operator: StartOperator, own_kubectl: Kubectl, kubelet: Kubelet, audit: AuditLog
) -> None:
    operator = start_operator()
    own_kubectl.apply([service(), endpoint_slice(), policy()])
    kubelet.run(generation=1, pods=[usable_pod()])
    wait_reason(own_kubectl, "Ready", "Serving")
    wait_reason(own_kubectl, "ObjectiveAttainable", "Attainable")
    assert operator.stop() == 0
    with recording(audit) as requests:
        again = start_operator()
        wait_until(
            lambda: again.metric('punctual_operator_reconciles_total{result="ok"}') >= 1,
            "the policy was looked at",
        )
    assert writes(requests, own_kubectl.namespace) == []


def test_no_request_is_refused_for_lack_of_rights(
    start_operator: StartOperator, own_kubectl: Kubectl, audit: AuditLog
) -> None:
    with recording(audit) as requests:
        start_operator(everywhere=True)
        gateway = {"networkPolicy": "Enabled", "scaling": {}}
        own_kubectl.apply(policy(gateway=gateway, autoscaling={"targetName": "gpt2"}))
        settle(own_kubectl)
        own_kubectl.apply(policy())
        wait_until(lambda: not exists(own_kubectl, "hpa", "gpt2-pool"), "the feature is off")
    own = [one for one in requests.requests if one.namespace in {"", own_kubectl.namespace}]
    assert {one.status for one in own} <= {0, 200, 201, 404}
    assert writes(requests, own_kubectl.namespace)


def test_operator_with_rights_in_one_namespace_alone_reports_a_lack_of_metrics(
    installed: Cluster, own_namespace: str, own_kubectl: Kubectl, tmp_path: Path
) -> None:
    rules: Any = [rule.manifest() for rule in RULES if not rule.wide]
    own_kubectl.apply(account_manifests(own_namespace, ACCOUNT, rules, None))
    own_kubectl("create", "deployment", "model", "--image=example.invalid/model:1")
    operator = OperatorProcess(installed, tmp_path, namespace=own_namespace)
    operator.start("--attention-seconds=1", f"--namespace={own_namespace}")
    try:
        own_kubectl.apply(policy(autoscaling={"targetName": "model"}))
        wait_reason(own_kubectl, "AutoscalingActive", "MetricUnavailable")
        changed = policy(autoscaling={"targetName": "model", "maximumReplicas": 9})
        own_kubectl.apply(changed)
        wait_until(
            lambda: own_kubectl.json("get", "hpa", "gpt2-pool")["spec"]["maxReplicas"] == 9,
            "later changes are applied",
        )
    finally:
        operator.stop(kill=True)
    assert "forbidden" not in operator.log.read_text()


def test_settled_policy_is_left_in_peace(
    start_operator: StartOperator, own_kubectl: Kubectl, audit: AuditLog
) -> None:
    operator = start_operator("--resync-seconds=0.5")
    own_kubectl.apply([service(), policy()])
    settle(own_kubectl)
    wait_reason(own_kubectl, "GatewayAvailable", "Unschedulable")
    name = 'punctual_operator_reconciles_total{result="ok"}'
    before = operator.metric(name)
    with recording(audit) as requests:
        wait_until(lambda: operator.metric(name) > before + 5, "it was looked at again")
    assert writes(requests, own_kubectl.namespace) == []


def test_policy_deleted_while_the_operator_is_away_takes_everything_along(
    start_operator: StartOperator, own_kubectl: Kubectl
) -> None:
    operator = start_operator()
    own_kubectl.apply(policy())
    settle(own_kubectl)
    operator.stop(kill=True)
    own_kubectl("delete", "ap", "gpt2", "--timeout=10s")
    wait_children(own_kubectl, there=False)


def test_namespace_that_is_deleted_goes_without_a_fight(
    start_operator: StartOperator, installed: Cluster, audit: AuditLog
) -> None:
    start_operator(everywhere=True)
    name = installed.create_namespace("ending")
    kubectl = installed.kubectl(name)
    kubectl.apply([policy(f"p{number}", backend={"service": f"p{number}"}) for number in range(4)])
    settle(kubectl, *(f"p{number}" for number in range(4)))
    with recording(audit) as requests:
        kubectl("delete", "namespace", name, "--timeout=60s")
    # each of the four may find out by itself, once, with all of its children
    assert len(writes(requests, name)) <= 4 * 14


def test_changes_made_while_the_operator_is_away_are_caught_up_with(
    start_operator: StartOperator, own_kubectl: Kubectl
) -> None:
    operator = start_operator()
    own_kubectl.apply(policy())
    settle(own_kubectl)
    operator.stop()
    own_kubectl("delete", "service", "gpt2-gateway")
    own_kubectl.apply(policy(deadline={"defaultMilliseconds": 800}))
    start_operator()
    wait_children(own_kubectl)
    wait_until(
        lambda: (
            "defaultMilliseconds: 800"
            in own_kubectl.json("get", "configmap", "gpt2-gateway")["data"]["policy.yaml"]
        ),
        "the new deadline is in the file",
    )


def test_object_that_lost_its_labels_is_still_taken_away(
    start_operator: StartOperator, own_kubectl: Kubectl
) -> None:
    operator = start_operator()
    own_kubectl.apply(policy(gateway={"networkPolicy": "Enabled"}))
    settle(own_kubectl)
    wait_until(
        lambda: "NetworkPolicy" in own_kubectl("get", "ap", "gpt2", "-o", "jsonpath={.status}"),
        "it is in the inventory",
    )
    operator.stop()
    own_kubectl("label", "networkpolicy", "gpt2-gateway", "app.kubernetes.io/managed-by-")
    own_kubectl.apply(policy())
    start_operator()
    wait_until(lambda: not exists(own_kubectl, "networkpolicy", "gpt2-gateway"), "it is gone")


def test_operator_killed_amid_its_work_finishes_it_next_time(
    start_operator: StartOperator, own_kubectl: Kubectl
) -> None:
    operator = start_operator("--workers=1")
    names = [f"p{number}" for number in range(12)]
    own_kubectl.apply([policy(name, backend={"service": name}) for name in names])
    wait_until(
        lambda: exists(own_kubectl, "configmap", "p0-gateway"), "the work has begun", every=0
    )
    operator.stop(kill=True)
    start_operator()
    settle(own_kubectl, *names)


@pytest.mark.parametrize("kill", [False, True])
def test_restart_of_the_api_server_is_survived(
    kill: bool,
    start_operator: StartOperator,
    own_kubectl: Kubectl,
    control_plane: ControlPlane,
) -> None:
    operator = start_operator()
    own_kubectl.apply(policy("before", backend={"service": "before"}))
    settle(own_kubectl, "before")
    control_plane.restart_api_server(kill=kill)
    own_kubectl.apply(policy("after", backend={"service": "after"}))
    settle(own_kubectl, "after")
    own_kubectl("delete", "service", "before-gateway")
    wait_children(own_kubectl, "before")
    assert operator.is_running


def test_cut_connections_are_made_anew(
    start_operator: StartOperator, own_kubectl: Kubectl, wire: Wire
) -> None:
    operator = start_operator(server=wire.server)
    own_kubectl.apply(policy("before", backend={"service": "before"}))
    settle(own_kubectl, "before")
    assert wire.cut() > 0
    own_kubectl.apply(policy("after", backend={"service": "after"}))
    settle(own_kubectl, "after")
    assert operator.is_running


def test_watch_that_fell_silent_is_noticed(
    start_operator: StartOperator, own_kubectl: Kubectl, wire: Wire
) -> None:
    operator = start_operator("--inactivity-seconds=3", server=wire.server)
    own_kubectl.apply(policy("before", backend={"service": "before"}))
    settle(own_kubectl, "before")
    assert wire.freeze() > 0
    own_kubectl.apply(policy("during", backend={"service": "during"}))
    own_kubectl("delete", "service", "before-gateway")
    wire.restore()
    settle(own_kubectl, "during")
    wait_children(own_kubectl, "before")
    assert operator.is_running


def test_deletion_that_no_watch_told_is_found_by_the_full_comparison(
    start_operator: StartOperator, own_kubectl: Kubectl, wire: Wire
) -> None:
    # the watches stay silent for as long as the test runs
    operator = start_operator("--resync-seconds=1", "--inactivity-seconds=600", server=wire.server)
    own_kubectl.apply(policy())
    settle(own_kubectl)
    wire.freeze()
    own_kubectl("delete", "service", "gpt2-gateway")
    wire.restore()
    wait_until(
        lambda: exists(own_kubectl, "service", "gpt2-gateway"), "it is there again", seconds=60
    )
    assert operator.metric("punctual_operator_missed_changes_total") >= 1


def test_operator_that_hears_nothing_asks_to_be_restarted(
    start_operator: StartOperator, wire: Wire
) -> None:
    operator = start_operator("--silence-seconds=2", "--heartbeat-seconds=0.5", server=wire.server)
    assert operator.healthz() == 200
    wire.freeze()
    wait_until(lambda: operator.healthz() == 500, "the probe fails")


def test_log_is_one_json_object_a_line_and_tells_each_transition(
    start_operator: StartOperator, own_kubectl: Kubectl
) -> None:
    operator = start_operator()
    own_kubectl.apply(policy())
    wait_reason(own_kubectl, "BackendsDiscovered", "ServiceNotFound")
    wait_until(lambda: "ServiceNotFound" in operator.log.read_text(), "it is in the log")
    operator.stop()
    lines = [json.loads(line) for line in operator.log.read_text().splitlines()]
    assert any("BackendsDiscovered is False" in line["message"] for line in lines)


def test_policy_of_another_release_says_so(tmp_path: Path) -> None:
    """A definition with a field that this operator does not know, on a control plane of its own."""
    plane = ControlPlane(tmp_path / "plane")
    plane.start()
    cluster = Cluster(plane.kubeconfig, tmp_path, plane)
    operator: OperatorProcess | None = None
    try:
        install(cluster)
        kubectl = cluster.kubectl()
        definition = kubectl.json("get", "crd", "admissionpolicies.punctual.dev")
        version = definition["spec"]["versions"][0]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["novel"] = {"type": "string", "maxLength": 9, "description": "New."}
        kubectl("replace", "-f", "-", stdin=json.dumps(definition))
        # The server goes on with the old schema for a while; until then the new field is refused.
        wait_until(lambda: accepted(kubectl, policy(novel="x")), "the definition is in force")
        operator = OperatorProcess(cluster, tmp_path)
        operator.start()
        kubectl.apply(policy(novel="x"))
        message = wait_reason(kubectl, "Ready", "InvalidPolicy")["message"]
        assert "novel" in message
        assert "custom resource definition" in message
    finally:
        if operator is not None:
            operator.stop()
        plane.stop()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_five_hundred_policies_converge_with_few_requests_each(
    start_operator: StartOperator,
    own_kubectl: Kubectl,
    audit: AuditLog,
) -> None:
    operator = start_operator("--attention-seconds=300")
    names = [f"p{number}" for number in range(500)]
    with recording(audit) as requests:
        for start in range(0, 500, 100):
            batch = names[start : start + 100]
            own_kubectl.apply([policy(name, backend={"service": name}) for name in batch])
        wait_until(
            lambda: settled_policies(own_kubectl) == 500, "all are settled", seconds=300, every=2
        )
    own = [one for one in requests.requests if one.namespace == own_kubectl.namespace]
    each = [one for one in own if one.verb in WRITES and one.resource != "events"]
    counts = requests.by_object()
    most, worst = max((counts[key], key) for key in counts if key[0] == "patch")
    figures = {
        "writes_per_policy": len(each) / 500,
        "requests_per_policy": len(own) / 500,
        "most_patches_of_one_object": most,
        "memory_mebibytes": operator.peak_memory_mebibytes(),
    }
    print(json.dumps(figures))
    # seven children and a status that is written a few times while the pods come up
    assert len(each) / 500 <= 7 + 6, figures
    assert most <= 8, worst
    # the chart's limit
    assert operator.peak_memory_mebibytes() < 256, figures


def accepted(kubectl: Kubectl, manifest: Manifest) -> bool:
    """Whether the server would take this object as it is."""
    try:
        kubectl.apply(manifest, "--dry-run=server")
    except KubectlError:
        return False
    return True


def settled_policies(kubectl: Kubectl) -> int:
    """How many policies have a complete status that names all children."""
    found = kubectl.json("get", "ap")["items"]
    return sum(
        len(one.get("status", {}).get("conditions", ())) == 6
        and len(one["status"].get("inventory", ())) == 7
        for one in found
    )
