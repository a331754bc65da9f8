"""The metrics adapter behind a real API server's aggregation."""

from __future__ import annotations

import base64
import json
import ssl
import statistics
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from adapterstand import ACCOUNT, SYSTEM, AdapterProcess, Gateways, install
from operatorstand.objects import policy
from support.alerts import missing_series
from testcluster.kubectl import Kubectl, KubectlError
from testcluster.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testcluster.cluster import Cluster
    from testcluster.control_plane import ControlPlane

ROOT = "/apis/external.metrics.k8s.io/v1beta1"
API_SERVICE = "v1beta1.external.metrics.k8s.io"


@pytest.fixture(scope="module")
def adapter(
    own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AdapterProcess]:
    """An adapter that runs for all tests of this module and owns the API group."""
    install(own_cluster)
    process = AdapterProcess(own_cluster, tmp_path_factory.mktemp("adapter"))
    process.start()
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


def read(kubectl: Kubectl, metric: str, selector: str = "", namespace: str = "") -> dict[str, Any]:
    path = f"{ROOT}/namespaces/{namespace or kubectl.namespace}/{metric}"
    query = f"?labelSelector={selector}" if selector else ""
    found: dict[str, Any] = json.loads(kubectl("get", "--raw", path + query))
    return found


def values(kubectl: Kubectl, metric: str, selector: str = "") -> list[str]:
    return [item["value"] for item in read(kubectl, metric, selector)["items"]]


def wait_value(kubectl: Kubectl, metric: str, value: str) -> None:
    def look() -> bool:
        try:
            found = values(kubectl, metric)
        except KubectlError as error:
            found = [error.message]
        assert found == [value]
        return True

    wait_until(look, f"{metric} is {value}")


def wait_count(kubectl: Kubectl, count: int) -> None:
    def look() -> bool:
        try:
            found = values(kubectl, "punctual_offered_load")
        except KubectlError as error:
            raise AssertionError(error.message) from error
        return len(found) == count

    wait_until(look, f"{count} policies are known", seconds=60)


METRICS = {
    "punctual_offered_load": "3500m",
    "punctual_arrivals_per_second": "30",
    "punctual_rejections_per_second": "3",
    "punctual_rejection_share": "100m",
    "punctual_queue_wait_seconds": "800m",
    "punctual_queue_wait_mean_seconds": "300m",
    "punctual_predicted_wait_seconds": "500m",
}
ONE = {
    "offered_load": 2.5,
    "arrivals_per_second": 20.0,
    "rejections_per_second": 1.0,
    "rejection_share": 0.05,
    "queue_wait_p95": 0.8,
    "queue_wait_mean": 0.2,
    "predicted_wait": 0.1,
}
TWO = {
    "offered_load": 1.0,
    "arrivals_per_second": 10.0,
    "rejections_per_second": 2.0,
    "rejection_share": 0.2,
    "queue_wait_p95": 0.1,
    "queue_wait_mean": 0.3,
    "predicted_wait": 0.5,
}


def test_each_metric_is_read_by_kubectl(
    adapter: AdapterProcess, gateways: Gateways, own_cluster: Cluster, own_namespace: str
) -> None:
    """Rates of two replicas are added, of waits the longer counts, the share is of all arrivals."""
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl.apply(policy())
    gateways.run(ONE)
    gateways.run(TWO)
    wait_value(kubectl, "punctual_offered_load", "3500m")
    assert {name: values(kubectl, name) for name in METRICS} == {
        name: [value] for name, value in METRICS.items()
    }
    item = read(kubectl, "punctual_offered_load")["items"][0]
    assert item["metricLabels"] == {"policy": "gpt2", "model": "gpt2"}
    assert item["window"] == 60


def test_discovery_lists_the_metrics(adapter: AdapterProcess, own_cluster: Cluster) -> None:
    kubectl = own_cluster.kubectl()
    listed = json.loads(kubectl("get", "--raw", ROOT))
    assert {one["name"] for one in listed["resources"]} == set(METRICS)
    wait_until(
        lambda: "punctual_offered_load" in kubectl("api-resources"), "resources are discovered"
    )


def test_selector_chooses_the_policy(
    adapter: AdapterProcess, gateways: Gateways, own_cluster: Cluster, own_namespace: str
) -> None:
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl.apply([policy(), policy("other", model="else", backend={"service": "others"})])
    gateways.run(ONE)
    gateways.run(TWO, policy="other")
    wait_count(kubectl, 2)
    assert len(values(kubectl, "punctual_offered_load", "policy%20in%20(gpt2,other)")) == 2
    assert values(kubectl, "punctual_offered_load", "policy%3Dgpt2") == ["2500m"]
    assert values(kubectl, "punctual_offered_load", "policy%21%3Dgpt2") == ["1"]
    assert values(kubectl, "punctual_offered_load", "model%3Delse") == ["1"]
    assert values(kubectl, "punctual_offered_load", "policy%3Dnone") == []
    with pytest.raises(KubectlError, match="a selector must be requirements"):
        values(kubectl, "punctual_offered_load", "a%20b")


def test_idle_gateway_reads_zero_and_unknown_load_is_an_error(
    adapter: AdapterProcess, gateways: Gateways, own_cluster: Cluster, own_namespace: str
) -> None:
    """A policy without a gateway, and one whose gateway has just begun, are not idle."""
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl.apply(policy())
    adapter.wait_rounds(2)
    with pytest.raises(KubectlError, match="not known now"):
        values(kubectl, "punctual_offered_load")
    replica = gateways.run(None)
    adapter.wait_rounds(2)
    with pytest.raises(KubectlError, match="not known now"):
        values(kubectl, "punctual_offered_load")
    replica.signals = dict.fromkeys(ONE, 0.0)
    wait_value(kubectl, "punctual_offered_load", "0")


@pytest.mark.parametrize("value", [-1.0, 1e300, "NaN", None, True])
def test_value_that_is_no_load_is_unknown(
    value: object,
    adapter: AdapterProcess,
    gateways: Gateways,
    own_cluster: Cluster,
    own_namespace: str,
) -> None:
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl.apply(policy())
    gateways.run(ONE | {"offered_load": value})
    wait_value(kubectl, "punctual_arrivals_per_second", "20")
    with pytest.raises(KubectlError, match="not known now"):
        values(kubectl, "punctual_offered_load")


def test_replica_that_falls_silent_does_not_lower_the_load(
    adapter: AdapterProcess, gateways: Gateways, own_cluster: Cluster, own_namespace: str
) -> None:
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl.apply(policy())
    gateways.run(ONE)
    silent = gateways.run(TWO)
    wait_value(kubectl, "punctual_offered_load", "3500m")
    silent.close()
    adapter.wait_rounds(5)
    assert values(kubectl, "punctual_offered_load") == ["3500m"]


def test_another_pod_at_a_gateways_address_is_not_believed(
    adapter: AdapterProcess, gateways: Gateways, own_cluster: Cluster, own_namespace: str
) -> None:
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl.apply(policy())
    gateways.run(ONE, speaks_for="else")
    adapter.wait_rounds(2)
    with pytest.raises(KubectlError, match="not known now"):
        values(kubectl, "punctual_offered_load")


def test_unknown_metric_is_not_found(
    adapter: AdapterProcess, own_cluster: Cluster, own_namespace: str
) -> None:
    kubectl = own_cluster.kubectl(own_namespace)
    with pytest.raises(KubectlError, match=r"NotFound.*could not find the metric no_such"):
        read(kubectl, "no_such")


def test_metric_of_another_namespace_is_forbidden(
    adapter: AdapterProcess, own_cluster: Cluster, own_namespace: str
) -> None:
    """A user who may read metrics in one namespace may not in the next."""
    other = own_cluster.create_namespace("neighbour")
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl("create", "serviceaccount", "reader")
    kubectl.apply(reader_role(own_namespace))
    account = Kubectl(own_cluster.account_kubeconfig(own_namespace, "reader"), own_namespace)
    assert read(account, "punctual_offered_load")["items"] == []
    with pytest.raises(KubectlError, match=r'[Ff]orbidden.*cannot list resource "punctual_off'):
        read(account, "punctual_offered_load", namespace=other)
    own_cluster.delete_namespace(other)


def reader_role(namespace: str) -> list[dict[str, Any]]:
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reader"}}
    rule = {"apiGroups": ["external.metrics.k8s.io"], "resources": ["*"], "verbs": ["list", "get"]}
    account = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    return [
        {**head, "kind": "Role", "rules": [rule]},
        {**head, "kind": "RoleBinding", "roleRef": role, "subjects": [account]},
    ]


FORGED = {"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"}


def ask(port: int, path: str, context: ssl.SSLContext) -> int:
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers=FORGED)
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:  # noqa: S310  # loopback
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return int(error.code)


def test_forged_headers_without_the_front_proxys_certificate_are_unauthorized(
    adapter: AdapterProcess,
) -> None:
    path = f"{ROOT}/namespaces/default/punctual_offered_load"
    for asked in (path, ROOT, "/apis"):
        assert ask(adapter.port, asked, ssl.create_default_context()) == 401
    for probed in ("/healthz", "/livez", "/readyz", "/metrics"):
        assert ask(adapter.port, probed, ssl.create_default_context()) == 200


def test_certificate_of_another_authority_is_refused(
    adapter: AdapterProcess, control_plane: ControlPlane
) -> None:
    """The administrator's own certificate does not allow to speak for others."""
    context = ssl.create_default_context()
    context.load_cert_chain(control_plane.pki / "admin.crt", control_plane.pki / "admin.key")
    with pytest.raises((ssl.SSLError, ConnectionError, urllib.error.URLError)):
        ask(adapter.port, ROOT, context)


def test_front_proxys_own_certificate_is_believed(
    adapter: AdapterProcess, control_plane: ControlPlane
) -> None:
    context = ssl.create_default_context()
    name = "front-proxy-client"
    context.load_cert_chain(control_plane.pki / f"{name}.crt", control_plane.pki / f"{name}.key")
    assert ask(adapter.port, ROOT, context) == 200


def test_renewed_certificate_is_served_and_trusted_without_a_restart(
    adapter: AdapterProcess, own_cluster: Cluster
) -> None:
    """The Secret is deleted: another authority and certificate, and the API is there again."""
    kubectl = own_cluster.kubectl(SYSTEM)
    before = ssl.get_server_certificate(("127.0.0.1", adapter.port))
    kubectl("delete", "secret", "punctual-metrics-adapter-tls")
    wait_until(
        lambda: ssl.get_server_certificate(("127.0.0.1", adapter.port)) != before,
        "another certificate is served",
    )
    secret = kubectl.json("get", "secret", "punctual-metrics-adapter-tls")

    def trusted() -> bool:
        spec = kubectl.json("get", "apiservice", API_SERVICE)["spec"]
        return bool(spec["caBundle"] == secret["data"]["ca.crt"])

    wait_until(trusted, "the API server trusts it")
    assert "BEGIN CERTIFICATE" in base64.b64decode(secret["data"]["ca.crt"]).decode()
    wait_until(lambda: bool(kubectl("get", "--raw", ROOT)), "it is reached")


def test_two_replicas_share_one_certificate(
    adapter: AdapterProcess, own_cluster: Cluster, tmp_path: Path
) -> None:
    second = AdapterProcess(own_cluster, tmp_path)
    second.start("--no-register")
    try:
        both = [ssl.get_server_certificate(("127.0.0.1", one.port)) for one in (adapter, second)]
        assert both[0] == both[1]
    finally:
        assert second.stop() == 0


def test_each_of_two_replicas_answers_by_itself(
    adapter: AdapterProcess, gateways: Gateways, own_cluster: Cluster, tmp_path: Path
) -> None:
    """The one that is left says what both said: it has asked all gateways, too."""
    kubectl = gateways.kubectl
    kubectl.apply(policy())
    gateways.run(ONE)
    wait_value(kubectl, "punctual_offered_load", "2500m")
    second = AdapterProcess(own_cluster, tmp_path)
    second.start()
    try:
        adapter.stop()
        second.wait_registered()
        wait_value(kubectl, "punctual_offered_load", "2500m")
    finally:
        adapter.start()
        adapter.wait_registered()
        second.stop()
    wait_value(kubectl, "punctual_offered_load", "2500m")


def test_registration_that_was_edited_is_repaired(
    adapter: AdapterProcess, own_cluster: Cluster
) -> None:
    kubectl = own_cluster.kubectl()
    before = kubectl.json("get", "apiservice", API_SERVICE)["spec"]
    kubectl(
        "patch", "apiservice", API_SERVICE, "--type=merge",
        "-p", json.dumps({"spec": {"caBundle": base64.b64encode(b"nobody").decode()}}),
    )  # fmt: skip
    wait_until(
        lambda: kubectl.json("get", "apiservice", API_SERVICE)["spec"] == before,
        "the registration is as it was",
    )
    wait_until(lambda: bool(kubectl("get", "--raw", ROOT)), "it is reached")


def test_registration_that_was_deleted_is_made_anew_at_the_second_look(
    adapter: AdapterProcess, own_cluster: Cluster
) -> None:
    """At the first one the adapter itself may be what is being removed."""
    kubectl = own_cluster.kubectl()
    kubectl("delete", "apiservice", API_SERVICE)
    wait_until(lambda: bool(kubectl("get", "--raw", ROOT)), "it is reached again")
    told = [line for line in adapter.log.read_text().splitlines() if "belongs to" in line]
    assert [line.rpartition(" ")[2] for line in told[-2:]] == ["nobody", "us"]


def test_registration_of_somebody_else_is_left_alone(
    own_cluster: Cluster, adapter: AdapterProcess, tmp_path: Path
) -> None:
    """An adapter with another Service sees that the group is taken, and says so."""
    kubectl = own_cluster.kubectl()
    before = kubectl.json("get", "apiservice", API_SERVICE)["spec"]
    allow_secret(own_cluster.kubectl(SYSTEM), "newcomer-tls")
    late = AdapterProcess(own_cluster, tmp_path, service="newcomer")
    late.start()
    try:
        wait_until(
            lambda: 'punctual_adapter_registration{owner="other"} 1.0' in late.metrics(),
            "the owner is seen",
        )
        assert kubectl.json("get", "apiservice", API_SERVICE)["spec"] == before
        assert "belongs to Service punctual-system/punctual-metrics-adapter" in late.log.read_text()
    finally:
        late.stop()


def allow_secret(kubectl: Kubectl, name: str) -> None:
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    verbs = ["get", "update"]
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": verbs}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}
    binding = {**head, "kind": "RoleBinding", "roleRef": role, "subjects": [account]}
    kubectl.apply([{**head, "kind": "Role", "rules": [rule]}, binding])


@pytest.mark.slow
def test_two_hundred_policies_are_answered_within_a_tenth_of_a_second(
    own_cluster: Cluster, adapter: AdapterProcess, gateways: Gateways, tmp_path: Path
) -> None:
    """At the adapter's own pace of questions; the bound is wider where a bare answer is slow."""
    kubectl = gateways.kubectl
    names = [f"p{number}" for number in range(200)]
    kubectl.apply([policy(name, backend={"service": name}) for name in names])
    gateways.run_many(ONE, names)
    own_pace = AdapterProcess(own_cluster, tmp_path)
    own_pace.start("--no-register", "--poll-seconds=5")
    try:
        reads, bare = own_pace.time_reads(kubectl.namespace, names, rounds=5)
    finally:
        own_pace.stop()
    p50, p99, noise = statistics.median(reads), percentile(reads, 99), percentile(bare, 99)
    print(f"p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, bare p99 {noise * 1000:.1f} ms")
    assert p99 < max(0.1, 3 * noise)


def percentile(times: list[float], percent: int) -> float:
    return statistics.quantiles(times, n=100)[percent - 1]


def test_adapter_exports_all_that_alerts_name(adapter: AdapterProcess) -> None:
    adapter.wait_rounds(1)
    assert missing_series("adapter", adapter.metrics()) == []
