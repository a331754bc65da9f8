"""The rendered chart for each combination of values, word for word.

`PUNCTUAL_WRITE_GOLDEN=1 pytest tests/unit/chart/test_golden.py` writes the files anew. What the
operator generates, its CRD, its rights and its adapter, is held by tests of its own and left out,
and so are the alert rules and the dashboard (tests/unit/monitoring).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from punctual_operator.rbac import RULES
from punctual_operator.yaml_text import yaml_documents

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
EVERYTHING: dict[str, Any] = yaml.safe_load((HERE / "everything.yaml").read_text())

COMBINATIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "namespaced": {
        "namespaces": ["team-a", "team-b"],
        "gateway": {"podMonitor": {"enabled": True}},
    },
    "nothing": {
        "rbac": {"create": False},
        "serviceAccount": {"create": False},
        "operator": {"metrics": {"enabled": False}},
    },
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_manifests_are_the_recorded_ones(
    name: str, render_objects: Callable[..., list[dict[str, Any]]]
) -> None:
    values = COMBINATIONS[name] | {"crd": {"install": False}}
    objects = [one for one in render_objects(values) if not _is_of_adapter(one)]
    text = yaml_documents(_without_others(found) for found in objects)
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("PUNCTUAL_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_every_golden_file_belongs_to_a_combination() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(COMBINATIONS)


def _is_of_adapter(found: dict[str, Any]) -> bool:
    return bool(found["metadata"]["labels"]["app.kubernetes.io/component"] == "metrics-adapter")


def _without_others(found: dict[str, Any]) -> dict[str, Any]:
    if found["kind"] == "PrometheusRule":
        groups = [group["name"] for group in found["spec"]["groups"]]
        return found | {"spec": {"groups": groups}}
    if found["kind"] == "ConfigMap":
        return found | {"data": sorted(found["data"])}
    for scope, kept in (("all", RULES), ("namespaced", [one for one in RULES if not one.wide])):
        if found.get("rules") == [rule.manifest() for rule in kept]:
            return found | {"rules": f"{scope} rules of punctual_operator.rbac"}
    return found
