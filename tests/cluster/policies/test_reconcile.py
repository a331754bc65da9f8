"""A policy becomes a gateway, stays one, and goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from operatorstand.kubelet import Kubelet, usable_pod
from operatorstand.objects import (
    CHILD_KINDS,
    conditions,
    endpoint_slice,
    exists,
    policy,
    service,
    wait_children,
    wait_reason,
)
from operatorstand.process import OperatorProcess
from testcluster.kubectl import Kubectl
from testcluster.waiting import wait_until

CONDITIONS = {
    "AutoscalingActive",
    "BackendsDiscovered",
    "GatewayAvailable",
    "ObjectiveAttainable",
    "PolicyApplied",
    "Ready",
}


def patch(kubectl: Kubectl, kind: str, name: str, change: dict[str, Any]) -> None:
    kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change))


def test_applied_policy_has_all_children_and_a_complete_status(
    operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    own_kubectl.apply(policy())
    wait_children(own_kubectl)
    wait_until(lambda: set(conditions(own_kubectl)) == CONDITIONS, "all conditions are set")
    found = own_kubectl.json("get", "admissionpolicy", "gpt2")
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    assert found["status"]["address"] == f"http://gpt2-gateway.{own_kubectl.namespace}.svc"
    assert "finalizers" not in found["metadata"]
    assert "annotations" not in found["metadata"]
    assert {one["kind"].lower() for one in found["status"]["inventory"]} == set(CHILD_KINDS)


def test_columns_show_the_state(operator: OperatorProcess, own_kubectl: Kubectl) -> None:
    own_kubectl.apply(policy(deadline={"defaultMilliseconds": 2000}))
    wait_until(lambda: "Ready" in conditions(own_kubectl), "the policy has a status")
    header, row = own_kubectl("get", "ap").splitlines()
    names = ["NAME", "MODE", "DEADLINE", "READY", "GATEWAYS", "BACKENDS", "REASON", "AGE"]
    assert header.split() == names
    assert row.split()[:6] == ["gpt2", "Predictive", "2000", "False", "0", "0"]


EDITS: dict[str, tuple[str, dict[str, Any]]] = {
    "a selector": ("service", {"spec": {"selector": {"app": "else"}}}),
    "a file": ("configmap", {"data": {"policy.yaml": "else"}}),
    "rules": ("role", {"rules": []}),
    "an argument": (
        "deployment",
        {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}},
    ),
    "replicas": ("deployment", {"spec": {"replicas": 3}}),
    "a budget": ("poddisruptionbudget", {"spec": {"maxUnavailable": 0}}),
    "labels": ("service", {"metadata": {"labels": None}}),
    "the digest": ("deployment", {"metadata": {"annotations": None}}),
}


@pytest.mark.parametrize("edit", EDITS)
def test_child_edited_by_hand_is_repaired(
    edit: str, operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    kind, change = EDITS[edit]
    own_kubectl.apply(policy())
    wait_children(own_kubectl)
    wait_until(lambda: "Ready" in conditions(own_kubectl), "the policy has a status")
    before = essence(own_kubectl.json("get", kind, "gpt2-gateway"))
    patch(own_kubectl, kind, "gpt2-gateway", change)
    wait_until(
        lambda: essence(own_kubectl.json("get", kind, "gpt2-gateway")) == before,
        f"the {kind} is as before",
    )


def essence(given: dict[str, Any]) -> dict[str, Any]:
    metadata = given["metadata"]
    annotations = metadata.get("annotations", {})
    kept = {key: value for key, value in annotations.items() if key.startswith("punctual.dev")}
    content = {name: given.get(name) for name in ("spec", "data", "rules")}
    return content | {"labels": metadata.get("labels"), "annotations": kept}


@pytest.mark.parametrize("kind", CHILD_KINDS)
def test_deleted_child_is_made_anew(
    kind: str, operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    own_kubectl.apply(policy())
    wait_children(own_kubectl)
    before = own_kubectl.json("get", kind, "gpt2-gateway")["metadata"]["uid"]
    own_kubectl("delete", kind, "gpt2-gateway")
    wait_until(
        lambda: (
            exists(own_kubectl, kind, "gpt2-gateway")
            and own_kubectl.json("get", kind, "gpt2-gateway")["metadata"]["uid"] != before
        ),
        f"there is another {kind}",
    )


def test_changed_deadline_is_applied_without_a_rollout(
    operator: OperatorProcess, own_kubectl: Kubectl, kubelet: Kubelet
) -> None:
    own_kubectl.apply([service(), policy()])
    replica = kubelet.run(generation=1)
    wait_reason(own_kubectl, "PolicyApplied", "Applied")
    before = own_kubectl.json("get", "deployment", "gpt2-gateway")["metadata"]["generation"]
    patch(own_kubectl, "ap", "gpt2", {"spec": {"deadline": {"defaultMilliseconds": 900}}})
    assert wait_reason(own_kubectl, "PolicyApplied", "Pending")["status"] == "False"
    file = own_kubectl.json("get", "configmap", "gpt2-gateway")["data"]["policy.yaml"]
    assert "defaultMilliseconds: 900" in file
    assert "generation: 2" in file
    replica.stats = replica.stats | {"policy": {"generation": 2, "problems": []}}
    assert wait_reason(own_kubectl, "PolicyApplied", "Applied")["observedGeneration"] == 2
    after = own_kubectl.json("get", "deployment", "gpt2-gateway")["metadata"]["generation"]
    assert after == before
    sets = own_kubectl("get", "replicasets", "-o", "name").split()
    assert len(sets) == 1


def test_everything_in_place_is_ready_and_told_by_events(
    operator: OperatorProcess, own_kubectl: Kubectl, kubelet: Kubelet
) -> None:
    own_kubectl.apply([service(), endpoint_slice(), policy()])
    kubelet.run(generation=1, pods=[usable_pod()])
    assert wait_reason(own_kubectl, "Ready", "Serving")["status"] == "True"
    assert conditions(own_kubectl)["ObjectiveAttainable"]["reason"] == "Attainable"
    reasons = wait_until(
        lambda: (
            {one["reason"] for one in own_kubectl.events() if "gpt2." in one["metadata"]["name"]}
            >= {"Available", "Discovered", "Applied", "Attainable", "Serving"}
        ),
        "each good turn is an Event",
    )
    assert reasons
    own_kubectl("wait", "--for=condition=Ready", "ap/gpt2", "--timeout=10s")


FEATURES: dict[str, tuple[dict[str, Any], str, str]] = {
    "network policy": ({"gateway": {"networkPolicy": "Enabled"}}, "networkpolicy", "gpt2-gateway"),
    "gateway scaling": ({"gateway": {"scaling": {}}}, "hpa", "gpt2-gateway"),
    "pool scaling": ({"autoscaling": {"targetName": "gpt2"}}, "hpa", "gpt2-pool"),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_feature_brings_its_object_and_takes_it_away(
    feature: str, operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    spec, kind, name = FEATURES[feature]
    for turned_on in (False, True, False):
        own_kubectl.apply(policy(**(spec if turned_on else {})))
        wait_children(own_kubectl)
        wait_until(
            lambda on=turned_on: exists(own_kubectl, kind, name) is on,  # type: ignore[misc]
            f"{kind} {name} is {'there' if turned_on else 'gone'}",
        )


def test_replicas_that_an_autoscaler_sets_are_left_alone(
    operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    own_kubectl.apply(policy(gateway={"scaling": {"minimumReplicas": 2}}))
    wait_children(own_kubectl)
    wait_until(
        lambda: own_kubectl.json("get", "deployment", "gpt2-gateway")["spec"]["replicas"] == 2,
        "the autoscaler has set its minimum",
    )
    managers = own_kubectl.json("get", "deployment", "gpt2-gateway", "--show-managed-fields")
    ours = [
        entry["fieldsV1"]
        for entry in managers["metadata"]["managedFields"]
        if entry["manager"] == "punctual-operator" and entry["operation"] == "Apply"
    ]
    assert len(ours) == 1
    assert "f:replicas" not in ours[0]["f:spec"]


def test_replicas_stay_when_an_autoscaler_takes_over_and_are_set_when_it_goes(
    operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    """The autoscaler cannot read its metric here, so it leaves what it finds within its bounds."""

    def replicas() -> int:
        return int(own_kubectl.json("get", "deployment", "gpt2-gateway")["spec"]["replicas"])

    def is_ours() -> bool:
        live = own_kubectl.json("get", "deployment", "gpt2-gateway", "--show-managed-fields")
        return any(
            "f:replicas" in entry["fieldsV1"]["f:spec"]
            for entry in live["metadata"]["managedFields"]
            if entry["manager"] == "punctual-operator" and "f:spec" in entry["fieldsV1"]
        )

    own_kubectl.apply(policy(gateway={"replicas": 3}))
    wait_children(own_kubectl)
    assert is_ours()
    own_kubectl.apply(policy(gateway={"scaling": {}}))
    wait_until(lambda: not is_ours(), "the operator has given the number up")
    assert replicas() == 3
    own_kubectl.apply(policy(gateway={"replicas": 2}))
    wait_until(lambda: replicas() == 2, "the operator sets the number again")
    assert is_ours()


def test_deleted_policy_takes_everything_along(
    operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    own_kubectl.apply(policy(gateway={"networkPolicy": "Enabled", "scaling": {}}))
    wait_children(own_kubectl)
    own_kubectl("delete", "ap", "gpt2", "--timeout=10s")
    wait_children(own_kubectl, there=False)
    for kind in ("networkpolicy", "hpa", "replicaset", "pod"):
        wait_until(
            lambda kind=kind: not own_kubectl("get", kind, "-o", "name"),  # type: ignore[misc]
            f"no {kind} is left",
        )


def test_policy_made_anew_at_once_has_children_of_its_own(
    operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    own_kubectl.apply(policy())
    wait_children(own_kubectl)
    own_kubectl("delete", "ap", "gpt2")
    own_kubectl.apply(policy())
    uid = own_kubectl.json("get", "ap", "gpt2")["metadata"]["uid"]

    def owned_anew() -> bool:
        return all(
            [
                owner["uid"]
                for owner in own_kubectl.json("get", kind, "gpt2-gateway")["metadata"][
                    "ownerReferences"
                ]
            ]
            == [uid]
            for kind in CHILD_KINDS
        )

    wait_children(own_kubectl)
    wait_until(owned_anew, "the children belong to the new policy")


def test_gateway_pods_are_taken_by_a_restricted_namespace(
    operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    own_kubectl(
        "label", "namespace", own_kubectl.namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    own_kubectl.apply(policy())
    wait_until(
        lambda: own_kubectl("get", "pods", "-l", "punctual.dev/policy=gpt2", "-o", "name"),
        "the pod is taken",
    )


def test_name_of_another_object_is_left_alone(
    operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "gpt2-gateway"},
        "data": {"theirs": "yes"},
    }
    own_kubectl.apply([theirs, policy()])
    message = wait_reason(own_kubectl, "Ready", "NameTaken")["message"]
    assert "ConfigMap 'gpt2-gateway'" in message
    assert own_kubectl.json("get", "configmap", "gpt2-gateway")["data"] == {"theirs": "yes"}
    own_kubectl("delete", "configmap", "gpt2-gateway")
    wait_until(
        lambda: exists(own_kubectl, "configmap", "gpt2-gateway"), "it is made once the name is free"
    )


def test_younger_policy_on_a_service_says_conflict_until_the_older_goes(
    operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    own_kubectl.apply(policy("first"))
    wait_children(own_kubectl, "first")
    own_kubectl.apply(policy("second"))
    message = wait_reason(own_kubectl, "Ready", "Conflict", "second")["message"]
    assert "'first'" in message
    assert not exists(own_kubectl, "deployment", "second-gateway")
    assert conditions(own_kubectl, "first")["Ready"]["reason"] != "Conflict"
    own_kubectl("delete", "ap", "first")
    wait_children(own_kubectl, "second")
    wait_until(
        lambda: conditions(own_kubectl, "second")["Ready"]["reason"] != "Conflict",
        "the conflict is over",
    )
