"""What is rendered for KEDA and prometheus-adapter, against the fields that these document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its types are a package of their own
import pytest
import yaml

from punctual_gateway.signals import GAUGES as GATEWAY_GAUGES
from punctual_operator.adapter import alternatives
from punctual_operator.adapter.series import SERIES
from punctual_operator.policies import parse
from punctual_operator.resources.scaling import build_pool_scaler

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "manifests" / "samples" / "policy-autoscaled.yaml"
SERVER = "http://prometheus.monitoring:9090"


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": required,
        "properties": properties,
    }


TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
TRIGGER = closed(
    ["type", "metadata"],
    type={"const": "prometheus"},
    name=TEXT,
    metricType={"enum": ["AverageValue", "Value"]},
    metadata=closed(
        ["serverAddress", "query", "threshold"],
        serverAddress={"type": "string", "pattern": "^https?://"},
        query=TEXT,
        threshold={"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$"},
        activationThreshold=TEXT,
        ignoreNullValues={"enum": ["true", "false"]},
    ),
)
WINDOW = closed([], stabilizationWindowSeconds=COUNT | {"maximum": 3600})
BEHAVIOUR = closed([], scaleUp=WINDOW, scaleDown=WINDOW)
SCALED_OBJECT = closed(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "keda.sh/v1alpha1"},
    kind={"const": "ScaledObject"},
    metadata=closed(["name"], name=TEXT, namespace=TEXT),
    spec=closed(
        ["scaleTargetRef", "triggers"],
        scaleTargetRef=closed(["name"], apiVersion=TEXT, kind=TEXT, name=TEXT),
        minReplicaCount=COUNT,
        maxReplicaCount=COUNT,
        pollingInterval=COUNT,
        cooldownPeriod=COUNT,
        advanced=closed([], horizontalPodAutoscalerConfig=closed([], behavior=BEHAVIOUR)),
        triggers={"type": "array", "minItems": 1, "items": TRIGGER},
    ),
)
"""The part of KEDA's schema (2.x) that is used here, without room for anything else."""
RULE = closed(
    ["seriesQuery", "metricsQuery"],
    seriesQuery=TEXT,
    metricsQuery={"type": "string", "pattern": "<<.Series>>.*<<.LabelMatchers>>"},
    resources=closed([], overrides={"type": "object"}),
    name=closed([], matches=TEXT, **{"as": TEXT}),
)
ADAPTER = closed(["externalRules"], externalRules={"type": "array", "items": RULE})
PROMETHEUS_RULE = closed(["record", "expr"], record=TEXT, expr=TEXT)


def rendered(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    assert alternatives.main(arguments) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_scaled_object_follows_kedas_schema(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = rendered(capsys, "keda", str(SAMPLE), "--prometheus", SERVER)
    jsonschema.validate(found, SCALED_OBJECT)


def test_scaled_object_scales_as_the_operators_own_autoscaler_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (found,) = rendered(capsys, "keda", str(SAMPLE), "--prometheus", SERVER)
    written = yaml.safe_load(SAMPLE.read_text())
    written["metadata"] |= {"namespace": "default", "uid": ""}
    policy = parse(written)
    assert policy.autoscaling is not None
    own = build_pool_scaler(policy, policy.autoscaling)["spec"]
    spec = found["spec"]
    assert spec["scaleTargetRef"] == own["scaleTargetRef"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (
        own["minReplicas"],
        own["maxReplicas"],
    )
    advanced = spec["advanced"]["horizontalPodAutoscalerConfig"]
    assert advanced["behavior"] == own["behavior"]
    target = own["metrics"][0]["external"]["target"]
    (trigger,) = spec["triggers"]
    assert trigger["metricType"] == target["type"]
    assert float(trigger["metadata"]["threshold"]) == quantity(target["averageValue"])
    assert trigger["metadata"]["ignoreNullValues"] == "false"


def quantity(text: str) -> float:
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def test_rules_follow_the_schemas_of_prometheus_and_its_adapter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recording, adapter = rendered(capsys, "prometheus-adapter", "--namespace=x")
    jsonschema.validate(adapter, ADAPTER)
    assert recording["metadata"]["namespace"] == "x"
    (group,) = recording["spec"]["groups"]
    for rule in group["rules"]:
        jsonschema.validate(rule, PROMETHEUS_RULE)
    recorded = {rule["record"] for rule in group["rules"]}
    assert {rule["name"]["as"] for rule in adapter["externalRules"]} == set(SERIES)
    assert all(rule["name"]["matches"][1:-1] in recorded for rule in adapter["externalRules"])


def test_rules_read_gauges_that_a_gateway_has(capsys: pytest.CaptureFixture[str]) -> None:
    known = {name for name, _ in GATEWAY_GAUGES.values()}
    recording, _ = rendered(capsys, "prometheus-adapter")
    for rule in recording["spec"]["groups"][0]["rules"]:
        gauge = rule["expr"].split("last_over_time(")[1].split("[")[0]
        assert gauge in known


def test_policy_that_cannot_be_used_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.yaml"
    for text, message in (
        ("spec: {model: x}", "must hold an AdmissionPolicy"),
        ("[", "must hold an AdmissionPolicy"),
        ("metadata: {name: x}\nspec: {model: x}", "must have an `autoscaling` section"),
    ):
        path.write_text(text)
        assert alternatives.main(["keda", str(path), "--prometheus", SERVER]) == 2
        assert message in capsys.readouterr().err
