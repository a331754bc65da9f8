"""Everything that the chart can render, against a real API server's schemas and admission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tools.generate import CHART, ROOT
from charts.tools.helm import HelmError, helm, helm_program
from testcluster.cluster import Cluster
from testcluster.kubectl import Kubectl, text_of
from testcluster.waiting import wait_until

EVERYTHING = ROOT / "tests" / "unit" / "chart" / "everything.yaml"
GROUP = "monitoring.coreos.com"


def record(**properties: Any) -> dict[str, Any]:
    """The schema of an object with these properties and no others."""
    return {"type": "object", "properties": properties}


def list_of(item: dict[str, Any]) -> dict[str, Any]:
    """The schema of a list."""
    return {"type": "array", "items": item}


TEXT = {"type": "string"}
YES_OR_NO = {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
SELECTOR = record(matchLabels=TEXTS)
NAMESPACES = record(any=YES_OR_NO, matchNames=list_of(TEXT))
ENDPOINT = record(
    port=TEXT,
    path=TEXT,
    interval=TEXT,
    scheme=TEXT,
    honorLabels=YES_OR_NO,
    tlsConfig=record(insecureSkipVerify=YES_OR_NO),
)
RULE = record(alert=TEXT, expr=TEXT, labels=TEXTS, annotations=TEXTS, **{"for": TEXT})
MONITORS = {
    "ServiceMonitor": record(
        selector=SELECTOR, namespaceSelector=NAMESPACES, endpoints=list_of(ENDPOINT)
    ),
    "PodMonitor": record(
        selector=SELECTOR,
        namespaceSelector=NAMESPACES,
        podTargetLabels=list_of(TEXT),
        podMetricsEndpoints=list_of(ENDPOINT),
    ),
    "PrometheusRule": record(groups=list_of(record(name=TEXT, interval=TEXT, rules=list_of(RULE)))),
}
"""The parts of prometheus-operator's kinds that the chart uses; the server refuses all others."""


@pytest.fixture(scope="module", autouse=True)
def _need_helm() -> None:
    try:
        helm_program()
    except HelmError as error:
        pytest.fail(str(error), pytrace=False)


def render(namespace: str, *options: str, release: str = "punctual") -> list[dict[str, Any]]:
    """The chart's objects for this namespace."""
    text = helm("template", release, str(CHART), "--namespace", namespace, *options)
    return [found for found in yaml.safe_load_all(text) if found]


def monitor_crd(kind: str) -> dict[str, Any]:
    """A definition of this kind of prometheus-operator's."""
    schema = {"openAPIV3Schema": record(spec=MONITORS[kind])}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    plural = f"{kind.lower()}s"
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture
def monitors(kubectl: Kubectl) -> Any:
    """The kinds of prometheus-operator, where the cluster has none of its own."""
    known = kubectl("get", "customresourcedefinitions", "-o", "name")
    added = [crd for crd in map(monitor_crd, MONITORS) if crd["metadata"]["name"] not in known]
    if added:
        kubectl.apply(added)
    for crd in added:
        kubectl("wait", "--for=condition=Established", f"crd/{crd['metadata']['name']}")
    wait_until(
        lambda: set(MONITORS) <= set(kubectl("api-resources", f"--api-group={GROUP}").split()),
        "the kinds are served",
    )
    yield
    for crd in added:
        kubectl("delete", "crd", crd["metadata"]["name"])


def check(kubectl: Kubectl, objects: list[dict[str, Any]]) -> None:
    """Let the server check each object against its schema; unknown fields are errors."""
    for found in objects:
        namespace = found["metadata"].get("namespace", kubectl.namespace)
        there = Kubectl(kubectl.kubeconfig, namespace)
        there.apply(found, "--dry-run=server", "--validate=strict", "--force-conflicts")


@pytest.mark.parametrize(
    "options", [(), ("--values", str(EVERYTHING))], ids=["defaults", "everything"]
)
def test_every_object_is_valid(
    options: tuple[str, ...], kubectl: Kubectl, namespace: str, monitors: None
) -> None:
    check(kubectl, render(namespace, *options))


def test_namespaced_installation_is_valid(kubectl: Kubectl, namespace: str, monitors: None) -> None:
    options = ("--set", f"namespaces={{{namespace}}}", "--set", "gateway.podMonitor.enabled=true")
    check(kubectl, render(namespace, *options))


def test_install_manifest_is_valid(kubectl: Kubectl, namespace: str) -> None:
    text = (ROOT / "manifests" / "install.yaml").read_text()
    own = text.replace("punctual-system", namespace)
    check(kubectl, [found for found in yaml.safe_load_all(own) if found])


@pytest.mark.parametrize(
    "options", [(), ("--values", str(EVERYTHING))], ids=["defaults", "everything"]
)
def test_pods_may_run_where_restricted_is_enforced(
    options: tuple[str, ...], cluster: Cluster
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = cluster.create_namespace("restricted", labels)
    try:
        objects = render(namespace, "--set", "metricsAdapter.enabled=true", *options)
        templates = [one["spec"]["template"] for one in objects if one["kind"] == "Deployment"]
        assert len(templates) == 2
        for template in templates:
            # what else a pod needs is not part of this question
            for field in ("serviceAccountName", "priorityClassName"):
                template["spec"].pop(field, None)
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}
            cluster.kubectl(namespace).apply(pod | {"spec": template["spec"]}, "--dry-run=server")
    finally:
        cluster.delete_namespace(namespace)


def test_rights_of_the_operator_suffice_to_create_its_role(
    kubectl: Kubectl, namespace: str
) -> None:
    """The Role of the namespaced installation holds in its namespace and in no other."""
    for found in render(namespace, "--set", f"namespaces={{{namespace}}}"):
        if found["kind"] in {"ServiceAccount", "Role", "RoleBinding"}:
            kubectl.apply(found)
    account = f"--as=system:serviceaccount:{namespace}:punctual-operator"

    def may(*what: str) -> bool:
        try:
            return kubectl("auth", "can-i", *what, account).strip() == "yes"
        except Exception as error:  # noqa: BLE001  # `no` is an exit status
            return "yes" in str(error)

    wait_until(lambda: may("patch", "deployments"), "the Role is in force")
    assert not may("patch", "deployments", "--namespace=default")
    assert not may("get", "secrets")


def test_uninstalled_release_leaves_nothing_but_what_its_notes_name(
    cluster: Cluster, monitors: None
) -> None:
    """With every value on, each object of the release goes, but for the definition."""
    namespace = cluster.create_namespace("everything")
    release = f"punctual-{namespace[-6:]}"
    kubectl = cluster.kubectl(namespace)
    common = ("--namespace", namespace)
    # Other tests have left rights of the names that the adapter has in every release.
    values = ("--values", str(EVERYTHING), "--take-ownership", "--force-conflicts")

    def there() -> list[str]:
        homes: dict[str, list[dict[str, Any]]] = {}
        for found in objects:
            homes.setdefault(found["metadata"].get("namespace", namespace), []).append(found)
        look = ("get", "-f", "-", "--ignore-not-found", "-o", "name")
        return [
            name
            for home, of_it in homes.items()
            for name in kubectl(*look, f"--namespace={home}", stdin=text_of(of_it)).split()
        ]

    objects = render(namespace, *values[:2], release=release)
    (crd,) = (one for one in objects if one["kind"] == "CustomResourceDefinition")
    definition = f"customresourcedefinition.apiextensions.k8s.io/{crd['metadata']['name']}"
    had_crd = definition in there()
    try:
        helm("install", release, str(CHART), *common, *values, kubeconfig=cluster.kubeconfig)
        assert len(there()) == len(objects)
        notes = helm("get", "notes", release, *common, kubeconfig=cluster.kubeconfig)
        helm("uninstall", release, *common, kubeconfig=cluster.kubeconfig)
        assert f"delete customresourcedefinition {crd['metadata']['name']}" in notes
        wait_until(lambda: there() == [definition], "only the definition is left")
        labelled = ("get", "pods,replicasets,secrets,configmaps", "-o", "name")
        selector = f"--selector=app.kubernetes.io/instance={release}"
        wait_until(lambda: not kubectl(*labelled, selector), "nothing made of these is left")
    finally:
        helm("uninstall", release, "--ignore-not-found", *common, kubeconfig=cluster.kubeconfig)
        if not had_crd:
            kubectl("delete", "crd", crd["metadata"]["name"], "--ignore-not-found")
        cluster.delete_namespace(namespace)


def test_helm_installs_upgrades_and_keeps_policies(cluster: Cluster, tmp_path: Path) -> None:
    """The release's life without nodes: policies survive an upgrade and the uninstallation."""
    namespace = cluster.create_namespace("helm")
    release = f"punctual-{namespace[-6:]}"
    kubectl = cluster.kubectl(namespace)
    common = ("--namespace", namespace)
    policy = {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": "kept", "namespace": namespace},
        "spec": {"model": "gpt2", "backend": {"service": "gpt2"}},
    }
    crd = "customresourcedefinition.apiextensions.k8s.io/admissionpolicies.punctual.dev"
    had_crd = crd in kubectl("get", "crd", "-o", "name")
    try:
        own = ("--take-ownership",)  # of the CRD of another test
        helm("install", release, str(CHART), *common, *own, kubeconfig=cluster.kubeconfig)
        kubectl("wait", "--for=condition=Established", crd)
        wait_until(lambda: kubectl.apply(policy), "the server takes policies")
        before = kubectl.json("get", "admissionpolicy", "kept")["metadata"]["uid"]
        settings = ("--set", "operator.logLevel=DEBUG")
        helm("upgrade", release, str(CHART), *common, *settings, kubeconfig=cluster.kubeconfig)
        helm("uninstall", release, *common, kubeconfig=cluster.kubeconfig)
        assert kubectl.json("get", "admissionpolicy", "kept")["metadata"]["uid"] == before
        kinds = "all,role,rolebinding,pdb,networkpolicy"
        # The pods of a deleted Deployment go when the garbage collector gets to them.
        wait_until(lambda: not kubectl("get", kinds, "-o", "name").split(), "nothing is left")
        cluster_wide = kubectl("get", "clusterrole,clusterrolebinding", "-o", "name")
        assert release not in cluster_wide
    finally:
        if not had_crd:
            kubectl("delete", crd, "--ignore-not-found")
        cluster.delete_namespace(namespace)
