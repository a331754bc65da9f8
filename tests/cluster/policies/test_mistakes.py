"""Each mistake in a policy or around it ends in a condition with the cause and the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from operatorstand.kubelet import Kubelet, usable_pod
from operatorstand.objects import (
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

BACKENDS = "BackendsDiscovered"


def described(kubectl: Kubectl, *words: str) -> None:
    """Assert that `kubectl describe` alone tells the cause and the remedy."""
    wait_until(lambda: "Warning" in kubectl("describe", "ap", "gpt2"), "there is an Event")
    text = kubectl("describe", "ap", "gpt2")
    for word in words:
        assert word in text


def test_missing_service(operator: OperatorProcess, own_kubectl: Kubectl) -> None:
    own_kubectl.apply(policy())
    wait_reason(own_kubectl, BACKENDS, "ServiceNotFound")
    described(own_kubectl, "no Service 'pods'", "clusterIP: None", "backend.service")
    own_kubectl.apply(service())
    wait_reason(own_kubectl, BACKENDS, "NoPods")


def test_service_with_an_address(operator: OperatorProcess, own_kubectl: Kubectl) -> None:
    own_kubectl.apply([service(headless=False), policy()])
    wait_reason(own_kubectl, BACKENDS, "ServiceNotHeadless")
    described(own_kubectl, "clusterIP: None")
    own_kubectl("delete", "service", "pods")
    own_kubectl.apply(service())
    wait_reason(own_kubectl, BACKENDS, "NoPods")


def test_service_without_pods(operator: OperatorProcess, own_kubectl: Kubectl) -> None:
    own_kubectl.apply([service(), policy()])
    wait_reason(own_kubectl, BACKENDS, "NoPods")
    described(own_kubectl, "no pod has the labels 'app=pods'")


def test_service_that_goes(operator: OperatorProcess, own_kubectl: Kubectl) -> None:
    own_kubectl.apply([service(), policy()])
    wait_reason(own_kubectl, BACKENDS, "NoPods")
    own_kubectl("delete", "service", "pods")
    wait_reason(own_kubectl, BACKENDS, "ServiceNotFound")


def test_pods_that_are_not_ready(operator: OperatorProcess, own_kubectl: Kubectl) -> None:
    own_kubectl.apply([service(), endpoint_slice(ready=False), policy()])
    wait_reason(own_kubectl, BACKENDS, "NoReadyPods")
    described(own_kubectl, "none of the 1 pods", "kubectl describe pods -l app=pods")
    own_kubectl.apply(endpoint_slice())
    wait_reason(own_kubectl, BACKENDS, "Discovered")


def test_wrong_port(operator: OperatorProcess, own_kubectl: Kubectl) -> None:
    own_kubectl.apply([service(), endpoint_slice(port=9000), policy()])
    wait_reason(own_kubectl, BACKENDS, "WrongPort")
    described(own_kubectl, "`backend.port` is 8000", "lists port 9000")


def test_pods_of_another_model(
    operator: OperatorProcess, own_kubectl: Kubectl, kubelet: Kubelet
) -> None:
    own_kubectl.apply([service(), endpoint_slice(), policy()])
    pod = usable_pod(available=False, model="llama", problem="it serves 'llama'")
    kubelet.run(generation=1, pods=[pod])
    wait_reason(own_kubectl, BACKENDS, "WrongModel")
    described(own_kubectl, "serve model 'llama'", "correct `model` or `backend.service`")


def test_pods_that_do_not_answer(
    operator: OperatorProcess, own_kubectl: Kubectl, kubelet: Kubelet
) -> None:
    own_kubectl.apply([service(), endpoint_slice(), policy()])
    pod = usable_pod(available=False, model=None, problem="no connection")
    replica = kubelet.run(generation=1, pods=[pod])
    wait_reason(own_kubectl, BACKENDS, "PodsUnusable")
    described(own_kubectl, "no connection")
    replica.stats = replica.stats | {"pods": [usable_pod()]}
    wait_reason(own_kubectl, BACKENDS, "Discovered")


@pytest.mark.parametrize(
    ("reason", "message"),
    [("ErrImagePull", "manifest unknown"), ("InvalidImageName", "could not parse reference")],
)
def test_image_that_cannot_be_had(
    reason: str, message: str, operator: OperatorProcess, own_kubectl: Kubectl, kubelet: Kubelet
) -> None:
    own_kubectl.apply(policy(gateway={"image": "registry.invalid/none:1"}))
    waiting = {"reason": reason, "message": message}
    stuck(kubelet, container(waiting=waiting))
    wait_reason(own_kubectl, "GatewayAvailable", "ImagePullFailed")
    described(own_kubectl, message, "correct `gateway.image`")


def stuck(kubelet: Kubelet, status: dict[str, Any]) -> None:
    scheduled = [{"type": "PodScheduled", "status": "True"}]
    pod = kubelet.gateway_pod()
    kubelet.set_status(pod, conditions=scheduled, containerStatuses=[status])


def container(**state: Any) -> dict[str, Any]:
    return {
        "name": "gateway",
        "image": "registry.invalid/none:1",
        "imageID": "",
        "ready": False,
        "restartCount": 1,
        "state": state,
    }


def test_gateway_that_crashes(
    operator: OperatorProcess, own_kubectl: Kubectl, kubelet: Kubelet
) -> None:
    own_kubectl.apply(policy())
    ended = {"exitCode": 2, "reason": "Error", "message": "invalid policy: spec.mode"}
    status = container(waiting={"reason": "CrashLoopBackOff", "message": "back-off 40s"})
    status["lastState"] = {"terminated": ended}
    stuck(kubelet, status)
    wait_reason(own_kubectl, "GatewayAvailable", "Crashing")
    described(own_kubectl, "exit status 2: invalid policy: spec.mode")


def quota(**hard: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": hard},
    }


def wait_quota(kubectl: Kubectl) -> None:
    wait_until(
        lambda: "hard" in kubectl.json("get", "resourcequota", "small").get("status", {}),
        "the quota is in force",
    )


def test_quota_on_pods(operator: OperatorProcess, own_kubectl: Kubectl) -> None:
    own_kubectl.apply(quota(pods="0"))
    wait_quota(own_kubectl)
    own_kubectl.apply(policy())
    wait_reason(own_kubectl, "GatewayAvailable", "QuotaExceeded")
    described(own_kubectl, "exceeded quota: small", "raise the namespace's ResourceQuota")


def test_quota_on_children(operator: OperatorProcess, own_kubectl: Kubectl) -> None:
    own_kubectl.apply(quota(services="0"))
    wait_quota(own_kubectl)
    own_kubectl.apply(policy())
    wait_reason(own_kubectl, "GatewayAvailable", "QuotaExceeded")
    described(own_kubectl, "exceeded quota: small")
    assert exists(own_kubectl, "deployment", "gpt2-gateway")
    own_kubectl("delete", "resourcequota", "small")
    wait_children(own_kubectl)


def test_policy_that_a_gateway_does_not_take(
    operator: OperatorProcess, own_kubectl: Kubectl, kubelet: Kubelet
) -> None:
    own_kubectl.apply([service(), policy()])
    problems = {"generation": 0, "problems": ["spec.novel is not a field"]}
    kubelet.run(generation=0, policy="gpt2").stats = {"policy": problems, "pods": []}
    wait_reason(own_kubectl, "PolicyApplied", "PolicyRejected")
    described(own_kubectl, "spec.novel is not a field", "the same release")


def test_gateway_that_cannot_be_asked(
    operator: OperatorProcess, own_kubectl: Kubectl, kubelet: Kubelet
) -> None:
    own_kubectl.apply([service(), policy()])
    replica = kubelet.run(generation=1)
    wait_reason(own_kubectl, "PolicyApplied", "Applied")
    replica.stats = {"something": "else"}
    own_kubectl(
        "patch", "ap", "gpt2", "--type=merge", "-p", '{"spec":{"queue":{"maximumRequests":9}}}'
    )
    wait_reason(own_kubectl, "PolicyApplied", "GatewayUnreachable")


def test_deadline_that_no_pod_can_keep(
    operator: OperatorProcess, own_kubectl: Kubectl, kubelet: Kubelet
) -> None:
    deadline = {"defaultMilliseconds": 100, "maximumMilliseconds": 100}
    own_kubectl.apply([service(), endpoint_slice(), policy(deadline=deadline)])
    kubelet.run(generation=1, pods=[usable_pod()])
    wait_reason(own_kubectl, "ObjectiveAttainable", "ModelTooSlow")
    described(own_kubectl, "at least 171", "at most 8")


def test_target_of_the_autoscaler_that_is_not_there(
    operator: OperatorProcess, own_kubectl: Kubectl
) -> None:
    own_kubectl.apply(policy(autoscaling={"targetName": "nobody"}))
    wait_reason(own_kubectl, "AutoscalingActive", "TargetNotScalable")
    described(own_kubectl, "Deployment 'nobody' cannot be scaled", "autoscaling.targetName")


def test_metric_that_nobody_serves(operator: OperatorProcess, own_kubectl: Kubectl) -> None:
    own_kubectl("create", "deployment", "model", "--image=example.invalid/model:1")
    own_kubectl.apply(policy(autoscaling={"targetName": "model"}))
    wait_reason(own_kubectl, "AutoscalingActive", "MetricUnavailable")
    described(own_kubectl, "metrics adapter")
