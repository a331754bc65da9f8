"""What the chart's objects promise to each other and to the operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from punctual_operator.adapter.cluster import API_SERVICE_NAME
from punctual_operator.adapter.manifests import build_manifests
from punctual_operator.adapter.settings import SERVICE
from punctual_operator.adapter.settings import parse_settings as parse_adapter_settings
from punctual_operator.crd import build_crd
from punctual_operator.names import HTTP_PORT, HTTP_PORT_NAME, selector_labels
from punctual_operator.rbac import RULES
from punctual_operator.settings import DEFAULT_IMAGE, parse_settings

DIGEST = f"sha256:{'a' * 64}"
RenderObjects = Callable[..., list[dict[str, Any]]]


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The objects of one kind."""
    return [found for found in objects if found["kind"] == kind]


def container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The operator's container."""
    deployment = next(
        found
        for found in of_kind(objects, "Deployment")
        if found["metadata"]["name"].endswith("-operator")
    )
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


def test_crd_is_the_operators_and_is_kept(render_objects: RenderObjects) -> None:
    (found,) = of_kind(render_objects(), "CustomResourceDefinition")
    assert found["spec"] == build_crd()["spec"]
    assert found["metadata"]["name"] == build_crd()["metadata"]["name"]
    assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_crd_goes_with_the_release_when_it_is_not_kept(render_objects: RenderObjects) -> None:
    (found,) = of_kind(render_objects({"crd": {"keep": False}}), "CustomResourceDefinition")
    assert "annotations" not in found["metadata"]


def test_cluster_wide_rights_are_those_of_the_operator(render_objects: RenderObjects) -> None:
    objects = render_objects({"rbac": {"aggregateToUserRoles": False}})
    (role,) = of_kind(objects, "ClusterRole")
    assert role["rules"] == [rule.manifest() for rule in RULES]
    assert not of_kind(objects, "Role")


def test_namespaced_rights_are_those_that_a_role_can_give_and_nothing_cluster_wide(
    render_objects: RenderObjects,
) -> None:
    values = {"namespaces": ["a", "b"], "rbac": {"aggregateToUserRoles": False}}
    objects = render_objects(values)
    roles = of_kind(objects, "Role")
    assert [role["metadata"]["namespace"] for role in roles] == ["a", "b"]
    rules = [rule.manifest() for rule in RULES if not rule.wide]
    assert all(role["rules"] == rules for role in roles)
    subjects = [binding["subjects"] for binding in of_kind(objects, "RoleBinding")]
    account = {"kind": "ServiceAccount", "name": "punctual-operator"}
    assert subjects == [[account | {"namespace": "punctual-system"}]] * 2
    assert not of_kind(objects, "ClusterRole")
    assert not of_kind(objects, "ClusterRoleBinding")


def test_operator_accepts_its_command_line(render_objects: RenderObjects) -> None:
    arguments = container(render_objects({"namespaces": ["a", "b"]}))["args"]
    settings = parse_settings(arguments)
    assert settings.namespaces == ("a", "b")
    assert settings.gateway_image == DEFAULT_IMAGE


def test_probes_and_metrics_use_the_operators_ports(render_objects: RenderObjects) -> None:
    found = container(render_objects())
    ports = {port["name"]: port["containerPort"] for port in found["ports"]}
    health = int(parse_settings([]).health.rpartition(":")[2])
    assert ports == {"health": health, "metrics": health + 1}


def test_adapter_is_the_operators_and_off_unless_asked_for(render_objects: RenderObjects) -> None:
    def is_of_adapter(found: dict[str, Any]) -> bool:
        return bool(found["metadata"]["labels"]["app.kubernetes.io/component"] == "metrics-adapter")

    assert not any(is_of_adapter(found) for found in render_objects())
    given = filter(is_of_adapter, render_objects({"metricsAdapter": {"enabled": True}}))
    objects = {(found["kind"], found["metadata"]["name"]): found for found in given}
    for wanted in build_manifests():
        found = objects.pop((wanted["kind"], wanted["metadata"]["name"]))
        labels = found["metadata"].pop("labels")
        assert wanted["metadata"].pop("labels").items() <= labels.items()
        if wanted["kind"] == "Deployment":
            wanted["spec"]["template"]["spec"]["containers"][0]["args"].append("--log-format=json")
        assert found == wanted
    # what it would make by itself, in the release, so that it goes with the release
    assert set(objects) == {
        ("Secret", f"{SERVICE}-tls"),
        ("APIService", API_SERVICE_NAME),
    }


def test_no_rights_are_made_where_they_are_made_by_somebody_else(
    render_objects: RenderObjects,
) -> None:
    adapter = {"metricsAdapter": {"enabled": True}}
    rights = {
        found["kind"]
        for found in render_objects(adapter)
        if found["apiVersion"].startswith("rbac.")
    }
    assert rights == {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    objects = render_objects(adapter | {"rbac": {"create": False}})
    assert rights.isdisjoint(found["kind"] for found in objects)
    assert len(of_kind(objects, "Deployment")) == 2


def test_adapter_accepts_its_command_line(render_objects: RenderObjects) -> None:
    (deployment,) = [
        found
        for found in of_kind(render_objects({"metricsAdapter": {"enabled": True}}), "Deployment")
        if found["metadata"]["name"] == SERVICE
    ]
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    settings = parse_adapter_settings(container["args"])
    assert settings.port == container["ports"][0]["containerPort"]


def test_monitor_and_network_policy_name_the_gateways_as_the_operator_does(
    render_objects: RenderObjects,
) -> None:
    values = {
        "gateway": {"podMonitor": {"enabled": True}},
        "operator": {"networkPolicy": {"enabled": True}},
    }
    objects = render_objects(values)
    labels = selector_labels("gpt2")
    (monitor,) = of_kind(objects, "PodMonitor")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == HTTP_PORT_NAME
    assert set(monitor["spec"]["podTargetLabels"]) <= set(labels)
    (policy,) = of_kind(objects, "NetworkPolicy")
    (peer,) = [rule for rule in policy["spec"]["egress"] if "to" in rule]
    assert peer["to"][0]["podSelector"]["matchLabels"].items() <= labels.items()
    assert [port["port"] for port in peer["ports"]] == [HTTP_PORT]


def test_no_disruption_budget_blocks_the_drain_of_a_node(render_objects: RenderObjects) -> None:
    values = {
        "metricsAdapter": {"enabled": True},
        "operator": {"podDisruptionBudget": {"enabled": True}},
    }
    budgets = [found["spec"] for found in of_kind(render_objects(values), "PodDisruptionBudget")]
    assert len(budgets) == 2
    for budget in budgets:
        assert budget["maxUnavailable"] == 1
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_long_release_names_give_valid_names(render_objects: RenderObjects) -> None:
    objects = render_objects({"fullnameOverride": "n" * 63})
    assert all(len(found["metadata"]["name"]) <= 63 for found in objects)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({}, "punctual-operator"),
        ({"nameOverride": "gate"}, "punctual-gate-operator"),
        ({"nameOverride": "gate", "fullnameOverride": "own"}, "own-operator"),
    ],
)
def test_names_come_from_release_and_chart_unless_overridden(
    values: dict[str, str], name: str, render_objects: RenderObjects
) -> None:
    (deployment,) = of_kind(render_objects(values), "Deployment")
    assert deployment["metadata"]["name"] == name


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ({"repository": "r/o", "tag": "2"}, "r/o:2"),
        ({"repository": "r/o"}, "r/o:0.1.0"),
        (
            {"repository": "r/o", "tag": "2", "digest": f"sha256:{'a' * 64}"},
            f"r/o@sha256:{'a' * 64}",
        ),
    ],
)
def test_digest_wins_over_tag_and_tag_over_version(
    image: dict[str, str], name: str, render_objects: RenderObjects
) -> None:
    assert container(render_objects({"operator": {"image": image}}))["image"] == name
