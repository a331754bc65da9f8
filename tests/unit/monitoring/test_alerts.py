"""The alert rules, judged by promtool, and the words that go with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tools.generate import ALERTS, CHART, ROOT, RUNBOOKS
from charts.tools.prometheus import promtool
from punctual_admission.outcomes import Reason
from punctual_operator.adapter.metrics import AdapterMetrics

HERE = Path(__file__).parent
MONITORING = ROOT / "manifests" / "monitoring"
LABEL = re.compile(r"\$labels\.(\w+)")
FIRING = re.compile(r"ALERTS\{(.*)\}")
PAIR = re.compile(r'(\w+)="([^"]*)"')

Rule = dict[str, Any]


def rules() -> list[Rule]:
    """All alerts, as a Prometheus without prometheus-operator reads them."""
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def firing() -> list[dict[str, str]]:
    """The labels of each alert that a test expects to fire."""
    text = "\n".join(path.read_text() for path in (HERE / "alerts").iterdir())
    return [dict(PAIR.findall(found)) for found in FIRING.findall(text) if "alertname" in found]


@pytest.mark.parametrize("name", ALERTS)
def test_alerts_fire_when_they_should_and_only_then(name: str) -> None:
    promtool("test", "rules", str(HERE / "alerts" / f"{name}.yaml"))


def test_promtool_accepts_the_rules() -> None:
    said = promtool("check", "rules", "--lint-fatal", str(MONITORING / "alerts.yaml"))
    assert f"{len(rules())} rules found" in said


def test_every_alert_is_seen_firing_in_a_test() -> None:
    wanted = {(rule["alert"], rule["labels"]["severity"]) for rule in rules()}
    assert {(labels["alertname"], labels["severity"]) for labels in firing()} == wanted


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_annotations_name_labels_that_the_alert_has(rule: Rule) -> None:
    named = set(LABEL.findall(" ".join(rule["annotations"].values())))
    for labels in firing():
        if labels["alertname"] == rule["alert"]:
            assert named <= set(labels)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_alert_says_how_bad_it_is_what_it_means_and_where_to_read_on(rule: Rule) -> None:
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}#{rule['alert'].lower()}"


def test_runbooks_has_a_section_for_each_alert_and_no_other() -> None:
    text = (ROOT / RUNBOOKS).read_text()
    assert set(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == {one["alert"] for one in rules()}


def test_each_runbook_says_what_it_means_how_to_look_and_what_to_do() -> None:
    sections = (ROOT / RUNBOOKS).read_text().split("\n### ")[1:]
    for section in sections:
        for part in ("**Meaning.**", "**Look.**", "**Do.**"):
            assert part in section, f"{section.splitlines()[0]} lacks {part}"


@pytest.mark.parametrize("reason", Reason)
def test_runbook_of_rejections_explains_every_reason(reason: Reason) -> None:
    (section,) = (
        part
        for part in (ROOT / RUNBOOKS).read_text().split("\n### ")
        if part.startswith("PunctualRejections\n")
    )
    assert f"`{reason}`" in section


def test_every_metric_of_the_adapter_is_explained() -> None:
    text = (ROOT / "docs" / "monitoring.md").read_text()
    names = [family.name for family in AdapterMetrics().registry.collect()]
    assert [name for name in names if f"`{name}" not in text] == []


def test_chart_installs_the_rules_of_what_is_enabled(
    render_objects: Callable[..., list[Rule]],
) -> None:
    def groups(**values: Any) -> list[str]:
        objects = render_objects({"alerts": {"enabled": True}} | values)
        (found,) = (one for one in objects if one["kind"] == "PrometheusRule")
        return [group["name"] for group in found["spec"]["groups"]]

    assert groups() == ["punctual-gateway", "punctual-operator"]
    assert groups(operator={"metrics": {"enabled": False}}) == ["punctual-gateway"]
    assert groups(metricsAdapter={"enabled": True})[-1] == "punctual-adapter"
    assert not any(one["kind"] == "PrometheusRule" for one in render_objects())


def test_chart_names_the_runbooks_where_they_are_published(
    render_objects: Callable[..., list[Rule]],
) -> None:
    values = {"alerts": {"enabled": True, "runbookUrl": "https://wiki.example/punctual"}}
    (found,) = (one for one in render_objects(values) if one["kind"] == "PrometheusRule")
    rule = found["spec"]["groups"][0]["rules"][0]
    assert rule["annotations"]["runbook_url"] == (
        "https://wiki.example/punctual#punctualrejections"
    )
    assert (
        rule
        == yaml.safe_load(
            (CHART / "files" / "alerts" / "gateway.yaml")
            .read_text()
            .replace("RUNBOOKS", "https://wiki.example/punctual")
        )["groups"][0]["rules"][0]
    )
