"""The chart, rendered by the pinned Helm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tools.generate import CHART
from charts.tools.helm import HelmError, helm, helm_program

Objects = list[dict[str, Any]]
Render = Callable[..., str]


@pytest.fixture(scope="session", autouse=True)
def _need_helm() -> None:
    try:
        helm_program()
    except HelmError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def render(tmp_path: Path) -> Render:
    """`render({"crd": {...}}, "--show-only", ...)` → the chart's manifests with these values."""

    def rendered(values: Mapping[str, Any] | None = None, *options: str) -> str:
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(dict(values or {})))
        arguments = ("--namespace", "punctual-system", "--values", str(path), *options)
        return helm("template", "punctual", str(CHART), *arguments)

    return rendered


@pytest.fixture
def render_objects(render: Render) -> Callable[..., Objects]:
    """The same, parsed."""

    def rendered(values: Mapping[str, Any] | None = None, *options: str) -> Objects:
        return [found for found in yaml.safe_load_all(render(values, *options)) if found]

    return rendered
