"""What values the chart takes, and what it says about others."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tools.generate import CHART, values_source
from charts.tools.helm import HelmError, helm
from charts.tools.values import Value, read_values
from punctual_operator.policies import parse

Render = Callable[..., str]
EVERYTHING: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("everything.yaml").read_text())
OTHERWISE_TESTED = [
    "nameOverride",
    "namespaces",
    "crd.install",
    "crd.keep",
    "rbac.create",
    "rbac.aggregateToUserRoles",
    "serviceAccount.create",
    "gateway.image.tag",
    "operator.image.digest",
    "operator.metrics.enabled",
]
"""Values that exclude another one, or turn something off: tests of their own set them."""


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"operatr": {}}, "operatr"),
        ({"operator": {"replicas": 2}}, "replicas"),
        ({"operator": {"logLevel": "LOUD"}}, "/operator/logLevel"),
        ({"operator": {"workers": 0}}, "/operator/workers"),
        ({"operator": {"resyncSeconds": "5m"}}, "/operator/resyncSeconds"),
        ({"operator": {"image": {"repository": ""}}}, "/operator/image/repository"),
        ({"operator": {"image": {"pullPolicy": "Sometimes"}}}, "/operator/image/pullPolicy"),
        ({"gateway": {"image": {"digest": "latest"}}}, "/gateway/image/digest"),
        ({"namespaces": ["Team_A"]}, "/namespaces/0"),
        ({"namespaces": ["a", "a"]}, "/namespaces"),
        ({"imagePullSecrets": ["registry"]}, "/imagePullSecrets/0"),
        ({"imagePullSecrets": [{"name": ".registry"}]}, "/imagePullSecrets/0/name"),
        ({"commonLabels": {"app.kubernetes.io/part-of": "ours"}}, "/commonLabels"),
        ({"operator": {"podLabels": {"app.kubernetes.io/name": "ours"}}}, "/operator/podLabels"),
        ({"crd": {"keep": "yes"}}, "/crd/keep"),
        ({"operator": {"networkPolicy": {"apiServerPorts": []}}}, "apiServerPorts"),
    ],
)
def test_wrong_value_is_refused_by_its_name(
    values: dict[str, Any], said: str, render: Render
) -> None:
    with pytest.raises(HelmError) as refusal:
        render(values)
    assert said in str(refusal.value)


@pytest.mark.parametrize("namespaces", [(), ("team-a", "team-b")])
def test_first_policy_in_the_notes_can_be_pasted_into_a_shell(namespaces: tuple[str, ...]) -> None:
    options = ("--dry-run=client", f"--set-json=namespaces={json.dumps(namespaces)}")
    notes = helm("install", "punctual", str(CHART), *options).partition("NOTES:")[2]
    start, end = notes.index("kubectl apply"), notes.index("kubectl get")
    script = f"kubectl() {{ cat; }}\n{notes[start:end]}"
    shell = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert shell.stderr == ""
    policy = yaml.safe_load(shell.stdout)
    assert policy["metadata"]["namespace"] == (namespaces or ("default",))[0]
    assert parse(policy | {"metadata": policy["metadata"] | {"uid": "1"}}).gateway.replicas == 1


def test_names_of_objects_may_have_dots(render: Render) -> None:
    dotted = {
        "imagePullSecrets": [{"name": "registry.example"}],
        "operator": {"priorityClassName": "example.com.serving"},
    }
    assert "name: registry.example\n" in render(dotted)


def test_chart_passes_helms_own_lint() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_every_value_says_what_it_is() -> None:
    assert all(value.text.endswith(".") for value in read_values(values_source()))


def test_value_without_a_text_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"section\.quiet must have a comment"):
        read_values("section:\n  # -- A.\n  told: 1\n  quiet: 2\n")


def test_everything_turns_every_template_on(render: Render) -> None:
    """What the server is asked about is the whole chart."""
    sources = re.findall(r"^# Source: punctual/templates/(\S+)", render(EVERYTHING), re.MULTILINE)
    objects = {path.name for path in (CHART / "templates").glob("*.yaml")}
    assert set(sources) == objects


def test_everything_sets_every_value_to_another_than_its_default() -> None:
    """A value that nothing sets is a value that nothing tests."""
    same = [value.name for value in read_values(values_source()) if not is_set(value)]
    assert same == OTHERWISE_TESTED


def is_set(value: Value) -> bool:
    """Whether the file of all values has this one, and not as its default."""
    found: Any = EVERYTHING
    for key in value.path:
        if not isinstance(found, dict) or key not in found:
            return False
        found = found[key]
    return bool(found != value.default)
