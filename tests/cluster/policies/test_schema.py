"""The API server takes what the schema allows and refuses everything else, saying what must be."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client as kube
from kubernetes import config
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import DynamicApiError

from operatorstand import objects
from operatorstand.objects import install, policy
from testcluster.cluster import Cluster
from testcluster.kubectl import Kubectl

Path = tuple[str, ...]

DAY = 86_400
COMPANIONS: dict[Path, dict[str, Any]] = {
    ("deadline", "defaultMilliseconds"): {
        "deadline": {"maximumMilliseconds": DAY * 1000},
        "gateway": {"finishSeconds": DAY},
    },
    ("deadline", "maximumMilliseconds"): {
        "deadline": {"defaultMilliseconds": 1},
        "gateway": {"finishSeconds": DAY},
    },
    ("gateway", "finishSeconds"): {
        "deadline": {"defaultMilliseconds": 1, "maximumMilliseconds": 1}
    },
    ("gateway", "scaling", "minimumReplicas"): {"gateway": {"scaling": {"maximumReplicas": 64}}},
    ("autoscaling", "minimumReplicas"): {"autoscaling": {"maximumReplicas": 1000}},
}
"""What has to be set along with a field so that no rule across fields is broken at its bounds."""

INNER = {("refusals", "overloadStatus")}
"""Fields whose bounds are wider than their rule allows in between."""


ITEM = "[]"
"""Stands in a path for an object in a list."""


def fields(schema: dict[str, Any], path: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    for name, field in schema.get("properties", {}).items():
        yield (*path, name), field
        yield from fields(field, (*path, name))
        yield from fields(field.get("items", {}), (*path, name, ITEM))


DEFINITION = yaml.safe_load((objects.MANIFESTS / "crd.yaml").read_text())
VERSION = DEFINITION["spec"]["versions"][0]
SPEC = VERSION["schema"]["openAPIV3Schema"]["properties"]["spec"]
FIELDS = dict(fields(SPEC))
ITEMS = {(*path, ITEM): field["items"] for path, field in FIELDS.items() if "items" in field}


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(base)
    for name, value in more.items():
        inner = isinstance(value, dict) and isinstance(found.get(name), dict)
        found[name] = merged(found[name], value) if inner else value
    return found


def with_value(path: Path, value: Any) -> dict[str, Any]:
    spec = merged(policy()["spec"], COMPANIONS.get(path, {}))
    if path[0] == "autoscaling":
        spec = merged(spec, {"autoscaling": {"targetName": "model"}})
    for depth in range(len(path) - 1, -1, -1):
        name = path[depth]
        if name == ITEM:
            required = FIELDS[path[:depth]]["items"].get("required", ())
            value = [dict.fromkeys(required, "a") | value]
        else:
            value = {name: value}
    return merged(spec, value)


def shown(path: Path) -> str:
    """The path as the server names it."""
    return "spec." + ".".join(path).replace(f".{ITEM}", "[0]")


def limits(path: Path, field: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Values of a field that are taken, and values that are refused."""
    if field["type"] == "integer":
        low, high = field["minimum"], field["maximum"]
        return [low, high], [low - 1, high + 1, "1", 1.5]
    if field["type"] == "array":
        items, most = field["items"], field["maxItems"]
        if items["type"] == "object":
            key = field["x-kubernetes-list-map-keys"][0]
            named = [{key: f"a{number}"} for number in range(most + 1)]
            return [named[:most]], [named, [named[0], named[0]], "a"]
        if items["type"] == "string":
            longest = "x" * items["maxLength"]
            return [[longest] * most], [[longest] * (most + 1), [longest + "x"], [7]]
        return [[items["minimum"]] * most], [
            [items["minimum"]] * (most + 1),
            [items["maximum"] + 1],
        ]
    if "enum" in field:
        return list(field["enum"]), ["Nonsense", field["enum"][0].lower(), ""]
    longest = field["maxLength"]
    refused = ["x" * (longest + 1), 7] + (["-bad value-"] if "pattern" in field else [])
    empty = path == ("backend", "service") or "default" not in field
    return ["x" * longest] + ([] if empty else [""]), refused


SCALARS = {path: field for path, field in FIELDS.items() if field["type"] != "object"}

RULES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "service": (
        "`backend.service` must name a headless Service",
        {"backend": {"service": "a"}},
        {"backend": {"service": ""}},
    ),
    "steps": (
        "`backend.stepMicroseconds` must not decrease",
        {"backend": {"stepMicroseconds": [5, 5, 6]}},
        {"backend": {"stepMicroseconds": [5, 4]}},
    ),
    "finish": (
        "`deadline.maximumMilliseconds` must be less than or equal to `gateway.finishSeconds`",
        {"gateway": {"finishSeconds": 300}},
        {"gateway": {"finishSeconds": 299}},
    ),
    "deadline": (
        "`defaultMilliseconds` must be less than or equal to `maximumMilliseconds`",
        {"deadline": {"defaultMilliseconds": 70, "maximumMilliseconds": 70}},
        {"deadline": {"defaultMilliseconds": 71, "maximumMilliseconds": 70}},
    ),
    "status": (
        "`overloadStatus` must be 429 or 503",
        {"refusals": {"overloadStatus": 429}},
        {"refusals": {"overloadStatus": 500}},
    ),
    "shares": (
        "`reservedPercent` of all tiers and size classes together must be at most 90",
        {
            "tiers": [{"name": "a", "reservedPercent": 50}, {"name": "b", "reservedPercent": 10}],
            "sizeClasses": [{"name": "long", "reservedPercent": 30}],
        },
        {
            "tiers": [{"name": "a", "reservedPercent": 61}, {"name": "b"}],
            "sizeClasses": [{"name": "long", "reservedPercent": 30}],
        },
    ),
    "replicas": (
        "`minimumReplicas` must be less than or equal to `maximumReplicas`",
        {"gateway": {"scaling": {"minimumReplicas": 3, "maximumReplicas": 3}}},
        {"gateway": {"scaling": {"minimumReplicas": 5}}},
    ),
    "pool replicas": (
        "`minimumReplicas` must be less than or equal to `maximumReplicas`",
        {"autoscaling": {"targetName": "a", "minimumReplicas": 4}},
        {"autoscaling": {"targetName": "a", "minimumReplicas": 5}},
    ),
}
"""Message, a change of the spec that is taken, and one that is refused."""


class Server:
    """Creates policies on trial."""

    def __init__(self, client: DynamicClient, namespace: str) -> None:
        self._policies = client.resources.get(
            api_version="punctual.dev/v1alpha1", kind="AdmissionPolicy"
        )
        self._namespace = namespace

    def create(self, spec: Any, name: str = "gpt2") -> dict[str, Any]:
        body = policy(name) | {"spec": spec}
        found: dict[str, Any] = self._policies.create(
            body=body, namespace=self._namespace, query_params=[("dryRun", "All")]
        ).to_dict()
        return found

    def refusal(self, spec: Any, name: str = "gpt2") -> str:
        with pytest.raises(DynamicApiError) as refused:
            self.create(spec, name)
        assert refused.value.status in {400, 422}
        return str(json.loads(refused.value.body)["message"])


@pytest.fixture(scope="module")
def server(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    install(cluster)
    settings = kube.Configuration()
    config.load_kube_config(config_file=str(cluster.kubeconfig), client_configuration=settings)
    cache = tmp_path_factory.mktemp("discovery") / "cache.json"
    namespace = cluster.create_namespace("schema")
    with kube.ApiClient(settings) as client:
        yield Server(DynamicClient(client, cache_file=str(cache)), namespace)
    cluster.delete_namespace(namespace)


def test_smallest_policy_gets_all_defaults(server: Server) -> None:
    found = server.create({"model": "gpt2", "backend": {"service": "pods"}})["spec"]
    for path, field in SCALARS.items():
        if "default" not in field or {"autoscaling", "scaling", ITEM} & set(path):
            continue
        value: Any = found
        for name in path:
            value = value[name]
        assert value == ("pods" if path == ("backend", "service") else field["default"]), path
    assert "autoscaling" not in found


@pytest.mark.parametrize("path", SCALARS, ids=".".join)
def test_value_at_a_bound_is_taken_and_beyond_it_refused(path: Path, server: Server) -> None:
    taken, refused = limits(path, SCALARS[path])
    for value in [*taken, *([429] if path in INNER else [])]:
        if path not in INNER or value in {429, 503}:
            server.create(with_value(path, value))
    for value in refused:
        assert shown(path) in server.refusal(with_value(path, value)), value


REQUIRED = [
    (*path, name)
    for path, schema in [((), SPEC), *FIELDS.items(), *ITEMS.items()]
    for name in schema.get("required", ())
]


@pytest.mark.parametrize("path", REQUIRED, ids=".".join)
def test_required_field_must_be_given(path: Path, server: Server) -> None:
    spec = with_value(path, "x")
    parent: Any = spec
    for name in path[:-1]:
        parent = parent[0] if name == ITEM else parent[name]
    del parent[path[-1]]
    assert f"{shown(path)}: Required value" in server.refusal(spec)


@pytest.mark.parametrize("rule", RULES)
def test_rule_across_fields(rule: str, server: Server) -> None:
    message, taken, refused = RULES[rule]
    base = policy()["spec"]
    server.create(merged(base, taken))
    assert message in server.refusal(merged(base, refused))


def test_every_rule_of_the_schema_has_a_case() -> None:
    messages = {
        rule["message"]
        for schema in (SPEC, *FIELDS.values(), *ITEMS.values())
        for rule in schema.get("x-kubernetes-validations", ())
    }
    cases = [message for message, _, _ in RULES.values()]
    assert all(any(message.startswith(case) for case in cases) for message in messages)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("a", True),
        ("a" * 40, True),
        ("a-1", True),
        ("a" * 41, False),
        ("1a", False),
        ("a.b", False),
    ],
)
def test_name_must_fit_the_names_of_children(name: str, taken: bool, server: Server) -> None:
    if taken:
        server.create(policy()["spec"], name)
    else:
        assert "`metadata.name` must be a DNS label" in server.refusal(policy()["spec"], name)


def test_unknown_field_is_refused_by_name(cluster: Cluster, server: Server) -> None:
    message = cluster.kubectl().refusal(policy(novel=1))
    assert 'unknown field "spec.novel"' in message


def test_columns_and_short_name_are_served(cluster: Cluster, server: Server) -> None:
    kubectl: Kubectl = cluster.kubectl()
    assert "admissionpolicies" in kubectl("api-resources", "--categories=punctual", "-o", "name")
    assert kubectl("get", "ap") == ""


def test_explain_describes_every_section(cluster: Cluster, server: Server) -> None:
    text = cluster.kubectl()("explain", "admissionpolicy.spec")
    for name in SPEC["properties"]:
        assert name in text
