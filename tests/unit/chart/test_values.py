"""What values the chart takes, and what it says about others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from charts.tools.generate import CHART, values_source
from charts.tools.helm import HelmError, helm
from charts.tools.values import read_values

Render = Callable[..., str]


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


def test_chart_passes_helms_own_lint() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


def test_every_value_says_what_it_is() -> None:
    assert all(value.text.endswith(".") for value in read_values(values_source()))


def test_value_without_a_text_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"section\.quiet must have a comment"):
        read_values("section:\n  # -- A.\n  told: 1\n  quiet: 2\n")
