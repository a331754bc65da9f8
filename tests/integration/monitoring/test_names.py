"""Alert rules and dashboard against what is really exported, asked through a real Prometheus."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from charts.tools.dashboard import build_dashboard
from charts.tools.generate import ROOT
from support.model_server import wait_until
from support.prometheus import Prometheus

RULES = [
    rule
    for group in yaml.safe_load((ROOT / "manifests/monitoring/alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
PANELS = [panel for panel in build_dashboard()["panels"] if panel["type"] != "row"]
CHOSEN = {
    "$namespace": ".*",
    "$policy": ".*",
    "$__rate_interval": "5s",
    "$__range": "1m",
}
"""What Grafana puts in the place of variables."""


def filled(expression: str) -> str:
    """A query as Grafana sends it."""
    for name, value in CHOSEN.items():
        expression = expression.replace(name, value)
    return expression


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['alert']}-{rule['for']}")
def test_alert_names_what_there_is(rule: dict[str, Any], monitored: Prometheus) -> None:
    for name in ("punctual_policy_info", "punctual_adapter_rounds_total", "punctual_pod_slots"):
        monitored.wait_for(name)
    monitored.wait_for("punctual_prediction_ratio")
    monitored.wait_for("punctual_operator_policies")
    assert monitored.missing(rule["expr"]) == []


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_panel_has_data(panel: dict[str, Any], monitored: Prometheus) -> None:
    for target in panel["targets"]:
        expression = filled(target["expr"])
        found = monitored.wait_for(expression)
        assert monitored.missing(expression) == []
        legend = target["legendFormat"]
        for label in (part.partition("}}")[0] for part in legend.split("{{")[1:]):
            # an empty value is no label to Prometheus
            assert any(label in sample["metric"] for sample in found), f"no {label} in {legend}"


def test_prometheus_evaluates_every_rule(monitored: Prometheus) -> None:
    def evaluated() -> bool:
        groups = monitored.get("rules")["groups"]
        return all(rule["lastEvaluation"][:4] != "0001" for one in groups for rule in one["rules"])

    wait_until(evaluated, 30)
    rules = [rule for group in monitored.get("rules")["groups"] for rule in group["rules"]]
    assert [rule["name"] for rule in rules if rule["health"] != "ok"] == []
    assert len(rules) == len(RULES)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("punctual_request_total > 0", "no metric punctual_request_total"),
        ('punctual_requests_total{outcome="rejected"}', "outcome='rejected'"),
        ('punctual_requests_total{outcome=~"refused|expird"}', "outcome='expird'"),
        ('rate(punctual_requests_total{reason!="client_quota"}[5m])', "reason='client_quota'"),
        ("sum by (namespace, polcy) (punctual_queue_requests)", "no label polcy"),
        ("max by (exported_pod) (punctual_pod_slots)", "no label exported_pod"),
    ],
)
def test_a_name_that_does_not_exist_is_found(
    expression: str, said: str, monitored: Prometheus
) -> None:
    monitored.wait_for("punctual_pod_slots")
    assert any(said in one for one in monitored.missing(expression))
