"""From an empty cluster to the first answer, and back."""

from __future__ import annotations

import json
import time
from typing import Any

from e2e.release import CRD, RESTRICTED, Release
from e2e.service import GATEWAY_PODS, POLICY, Service
from testcluster.cluster import Cluster
from testcluster.waiting import wait_until


def test_first_answer_comes_from_the_applied_sample(
    release: Release, pod_cluster: Cluster, figures: list[str]
) -> None:
    """The sample that the README names answers a completion; how soon is printed at the end."""
    namespace = pod_cluster.create_namespace("first", RESTRICTED)
    service = Service(pod_cluster.kubectl(namespace))
    begun = time.monotonic()
    service.apply()

    def answered() -> Any:
        return service.complete("hello", max_tokens=4)

    answer = wait_until(answered, "the sample answers", seconds=90)
    figures.append(f"kubectl apply to the first answer: {time.monotonic() - begun:.1f} s")
    assert answer["model"] == "lab"
    assert answer["usage"]["completion_tokens"] == 4
    pod_cluster.delete_namespace(namespace)


def test_model_list_and_statistics_are_served(service: Service) -> None:
    assert [model["id"] for model in service.ask("/v1/models")["data"]] == ["lab"]
    assert service.ask("/stats")["policy"]["name"] == "quickstart"


def test_operator_needs_no_cluster_wide_right_in_its_namespaced_form(
    release: Release, pod_cluster: Cluster
) -> None:
    """With `namespaces` set, a policy there is served by an operator that has Roles alone."""
    namespace = pod_cluster.create_namespace("scoped")
    service = Service(pod_cluster.kubectl(namespace))
    release.install("--set", f"namespaces={{{namespace}}}")
    try:
        assert not release.may("list", "admissionpolicies", "--all-namespaces")
        service.apply()
        service.wait_ready()
        assert service.complete("hello", max_tokens=2)["model"] == "lab"
    finally:
        pod_cluster.delete_namespace(namespace)
        release.install()


def test_uninstalled_release_leaves_policies_whose_gateways_go_on(
    service: Service, release: Release
) -> None:
    """Only the CRD and what hangs on it stays, every request during the removal is answered."""
    load = service.load(25, 2, "--deadline-ms=10000", "--retry=obey")
    release.uninstall()
    try:
        kept = release.kubectl("get", CRD, "-o", "name").strip()
        assert kept.endswith("/admissionpolicies.punctual.dev")
        wait_until(lambda: release.left_behind() == [], "nothing else is left", seconds=60)
        assert service.complete("hello", max_tokens=2)["model"] == "lab"
        load.wait().assert_promises_kept()
    finally:
        release.install()
    service.wait_applied(service.change({"deadline": {"defaultMilliseconds": 2500}}))


def test_autoscalers_read_the_demand_from_the_adapter(service: Service, release: Release) -> None:
    """With the adapter switched on, the metrics API has the policy's offered load; off, it goes."""
    namespace = service.kubectl.namespace
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/punctual_offered_load"
    release.install("--set", "metricsAdapter.enabled=true", "--set", "metricsAdapter.replicas=1")
    try:
        load = service.load(40, 2, "--deadline-ms=10000")

        def measured() -> bool:
            items = json.loads(service.kubectl("get", "--raw", path))["items"]
            assert [item["metricLabels"]["policy"] for item in items] == ["quickstart"]
            return bool(items[0]["value"] not in {"0", ""})

        wait_until(measured, "the offered load is served", seconds=60, every=1)
        load.wait()
        release.install("--set", "metricsAdapter.enabled=true", "--set", "operator.workers=4")
    finally:
        release.install()
    gone = ("get", "apiservice", "--ignore-not-found", "v1beta1.external.metrics.k8s.io")
    wait_until(lambda: not release.kubectl(*gone), "the API is not registered any more")


def test_deleted_policy_takes_its_gateway_with_it(service: Service) -> None:
    kinds = "deployment,service,configmap,serviceaccount,role,rolebinding,pdb,pod"
    assert service.kubectl("get", kinds, GATEWAY_PODS, "-o", "name")
    service.kubectl("delete", POLICY, "--timeout=30s")
    wait_until(
        lambda: not service.kubectl("get", kinds, GATEWAY_PODS, "-o", "name"),
        "all that belonged to the gateway is gone",
        seconds=90,
        every=1,
    )


def test_upgrade_from_the_chart_before_keeps_policies_and_drops_no_request(
    service: Service, release: Release
) -> None:
    """`helm upgrade` under load: same policies, same gateway pods, nothing late or failed."""
    release.install(chart=release.packed("0.0.9"))
    before = service.identity()
    load = service.load(25, 2, "--deadline-ms=10000", "--retry=obey")
    release.install()
    load.wait().assert_promises_kept()
    assert service.identity() == before
