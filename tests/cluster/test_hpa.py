"""The real autoscaler on the adapter's metrics, with the object that the operator writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from adapterstand import AdapterProcess, Gateways, install
from operatorstand.kubelet import Kubelet
from operatorstand.objects import policy, service, wait_reason
from operatorstand.process import OperatorProcess
from punctual_lab.simulate.hpa import Autoscaler, Behaviour, Metric, Target
from punctual_operator.policies import parse
from punctual_operator.resources.scaling import build_pool_scaler
from testcluster.kubectl import Kubectl
from testcluster.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testcluster.cluster import Cluster

MOST = 12
SCALING = {
    "targetName": "pool",
    "minimumReplicas": 1,
    "maximumReplicas": MOST,
    "scaleDownStabilisationSeconds": 0,
}


@pytest.fixture
def adapter(
    own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AdapterProcess]:
    """An adapter that the API server asks."""
    install(own_cluster)
    process = AdapterProcess(own_cluster, tmp_path_factory.mktemp("adapter"))
    process.start("--hold-seconds=2")
    process.wait_registered()
    yield process
    process.stop()
    process.unregister()


@pytest.fixture
def gateways(own_cluster: Cluster, own_namespace: str) -> Iterator[Gateways]:
    """Gateway replicas in the test's own namespace."""
    found = Gateways(own_cluster.kubectl(own_namespace))
    yield found
    found.close()


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "pool"}
    containers = [{"name": "model", "image": "example.invalid/model:1"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "pool"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
        },
    }


def scaler(kubectl: Kubectl) -> dict[str, Any]:
    """The autoscaler that the operator writes for the policy, without its owner."""
    found = parse(kubectl.json("get", "admissionpolicy", "gpt2"))
    assert found.autoscaling is not None
    manifest = build_pool_scaler(found, found.autoscaling)
    del manifest["metadata"]["ownerReferences"]
    return manifest


def replicas(kubectl: Kubectl) -> int:
    return int(kubectl.json("get", "deployment", "pool")["spec"]["replicas"])


def wait_replicas(kubectl: Kubectl, count: int) -> None:
    def look() -> bool:
        found = replicas(kubectl)
        assert found == count, kubectl.json("get", "hpa", "gpt2-pool").get("status")
        return True

    wait_until(look, f"the pool has {count} pods", seconds=60)


def condition(kubectl: Kubectl, kind: str) -> tuple[str, str]:
    status = kubectl.json("get", "hpa", "gpt2-pool").get("status", {})
    found = {one["type"]: one for one in status.get("conditions", ())}.get(kind, {})
    return str(found.get("status")), str(found.get("reason"))


def signals(load: float) -> dict[str, float]:
    return {"offered_load": load, "arrivals_per_second": 1.0}


LOADS = (2.8, 4.8, 5.3, 5.5, 2.0, 0.0, 0.001, 3.0)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("tolerance", [None, 0, 25])
def test_autoscaler_sets_the_count_that_the_arithmetic_of_the_laboratory_says(
    tolerance: int | None, adapter: AdapterProcess, gateways: Gateways
) -> None:
    """Up, within the tolerance, down when idle and up again: each from the count before."""
    kubectl = gateways.kubectl
    scaling = SCALING if tolerance is None else SCALING | {"tolerancePercent": tolerance}
    kubectl.apply([policy(autoscaling=scaling), deployment(4)])
    replica = gateways.run(signals(2.8))
    adapter.wait_rounds(2)
    kubectl.apply(scaler(kubectl))
    count = 4
    counts = []
    for load in LOADS:
        replica.signals = signals(load)
        share = 0.1 if tolerance is None else tolerance / 100
        simulated = Autoscaler(1, MOST, Behaviour(share, down_window=0.0))
        metric = Metric(Target.AVERAGE_VALUE, 0.7, load)
        count = simulated.decide(0.0, count, count, [metric])
        adapter.wait_rounds(2)
        wait_replicas(kubectl, count)
        counts.append(count)
    assert counts[-3:] == [1, 1, 5]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pool_of_minimum_zero_goes_to_none_when_idle_and_back_by_what_is_refused(
    adapter: AdapterProcess, gateways: Gateways
) -> None:
    """At zero pods the gateway refuses, and the work that it refused asks for pods."""
    kubectl = gateways.kubectl
    kubectl.apply([policy(autoscaling=SCALING | {"minimumReplicas": 0}), deployment(2)])
    replica = gateways.run(signals(1.4))
    adapter.wait_rounds(2)
    kubectl.apply(scaler(kubectl))
    wait_replicas(kubectl, 2)
    for load, count in ((0.0, 0), (0.002, 1), (4.8, 7), (0.0, 0)):
        replica.signals = signals(load)
        wait_replicas(kubectl, count)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_window_for_scaling_down_follows_the_time_that_pods_took_to_start(
    own_cluster: Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    install(own_cluster)
    kubectl = own_cluster.kubectl(own_namespace)
    started_pod(kubectl)
    operator = OperatorProcess(own_cluster, tmp_path_factory.mktemp("operator"))
    operator.start("--attention-seconds=1")
    try:
        kubectl.apply([service(), policy(autoscaling={"targetName": "pool"})])

        def look() -> bool:
            behaviour = kubectl.json("get", "hpa", "gpt2-pool")["spec"]["behavior"]
            assert behaviour["scaleDown"]["stabilizationWindowSeconds"] == 1020
            return True

        wait_until(look, "the window is five starts of 200 s, in whole minutes", seconds=60)
    finally:
        operator.stop()


def started_pod(kubectl: Kubectl) -> None:
    """A model pod that was ready 200 s after it was scheduled."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "model-0", "labels": {"app": "pods"}},
        # no scheduler: it would say that there is no node
        "spec": {
            "schedulerName": "none",
            "containers": [{"name": "model", "image": "example.invalid/model:1"}],
        },
    }
    times = {"PodScheduled": "2026-11-29T10:00:00Z", "Ready": "2026-11-29T10:03:20Z"}
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": when} for kind, when in times.items()
    ]
    kubectl.apply(pod)
    status = {"phase": "Running", "conditions": conditions}
    kubectl.apply(
        pod | {"status": status},
        "--subresource=status",
        "--field-manager=kubelet",
        "--force-conflicts",
    )


@pytest.mark.slow
def test_pool_is_frozen_while_the_adapter_is_down_and_scaled_again_afterwards(
    adapter: AdapterProcess, gateways: Gateways
) -> None:
    kubectl = gateways.kubectl
    kubectl.apply([policy(autoscaling=SCALING), deployment(4)])
    replica = gateways.run(signals(4.8))
    adapter.wait_rounds(2)
    kubectl.apply(scaler(kubectl))
    wait_replicas(kubectl, 7)
    adapter.stop(kill=True)
    replica.signals = signals(0.0)
    wait_until(
        lambda: condition(kubectl, "ScalingActive") == ("False", "FailedGetExternalMetric"),
        "the autoscaler has no metric",
        seconds=60,
    )
    assert replicas(kubectl) == 7
    adapter.start("--hold-seconds=2")
    wait_replicas(kubectl, 1)


@pytest.mark.slow
def test_pool_is_frozen_while_no_gateway_answers(
    adapter: AdapterProcess, gateways: Gateways
) -> None:
    """All gateways are silent for longer than their last value may stand in."""
    kubectl = gateways.kubectl
    kubectl.apply([policy(autoscaling=SCALING), deployment(4)])
    replica = gateways.run(signals(4.8))
    adapter.wait_rounds(2)
    kubectl.apply(scaler(kubectl))
    wait_replicas(kubectl, 7)
    replica.close()
    wait_until(
        lambda: condition(kubectl, "ScalingActive") == ("False", "FailedGetExternalMetric"),
        "the autoscaler has no metric",
        seconds=60,
    )
    assert replicas(kubectl) == 7


@pytest.mark.slow
def test_policy_with_autoscaling_becomes_an_active_autoscaler(
    adapter: AdapterProcess,
    own_cluster: Cluster,
    own_namespace: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The operator writes it, the adapter feeds it, the policy's condition says so."""
    kubectl = own_cluster.kubectl(own_namespace)
    operator = OperatorProcess(own_cluster, tmp_path_factory.mktemp("operator"))
    kubelet = Kubelet(kubectl)
    operator.start("--attention-seconds=1")
    try:
        kubectl.apply([service(), policy(autoscaling=SCALING), deployment(1)])
        gateway = kubelet.run(1)
        gateway.stats["policy"] |= {"name": "gpt2", "namespace": own_namespace}
        gateway.stats["signals"] = signals(2.0)
        wait_replicas(kubectl, 3)
        found = wait_reason(kubectl, "AutoscalingActive", "Active", seconds=60)
        assert found["status"] == "True"
    finally:
        operator.stop()
        kubelet.close()


@pytest.mark.slow
def test_policy_names_whoever_else_answers_for_external_metrics(
    own_cluster: Cluster, own_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Another owner of the API group is left as it is, and each policy says who it is."""
    install(own_cluster)
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl.apply(foreign_owner())
    operator = OperatorProcess(own_cluster, tmp_path_factory.mktemp("operator"))
    operator.start("--attention-seconds=1")
    try:
        kubectl.apply([service(), policy(autoscaling=SCALING), deployment(1)])
        found = wait_reason(kubectl, "AutoscalingActive", "MetricsApiTaken", seconds=60)
        assert "'keda/keda-operator-metrics-apiserver'" in found["message"]
    finally:
        operator.stop()
        kubectl("delete", "apiservice", "v1beta1.external.metrics.k8s.io")


def foreign_owner() -> dict[str, Any]:
    service_of = {"namespace": "keda", "name": "keda-operator-metrics-apiserver", "port": 443}
    spec = {
        "group": "external.metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": service_of,
    }
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
        "spec": spec,
    }
