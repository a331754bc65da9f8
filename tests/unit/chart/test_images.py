"""What goes into the images, as far as their recipes tell it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from charts.tools.generate import CHART, ROOT

COMPONENTS = ("gateway", "lab", "model-server", "operator")
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", re.MULTILINE)
IMAGE = re.compile(r"image: (punctual/\S+)")


def pins(name: str) -> set[tuple[str, str]]:
    """Package and version of each line of a lock file."""
    return set(PIN.findall((ROOT / "requirements" / f"{name}.txt").read_text()))


def normal(package: str) -> str:
    """A package's name as the index spells it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", package)[0]).lower()


@pytest.mark.parametrize("component", COMPONENTS)
def test_image_runs_as_nobody_in_particular_on_any_base(component: str) -> None:
    lines = (ROOT / component / "Dockerfile").read_text().splitlines()
    assert "ARG BASE=python:3.13-slim" in lines
    assert lines.count("FROM ${BASE}") == 1
    assert "USER 65532:65532" in lines[lines.index("FROM ${BASE}") :]
    assert lines[-1].startswith(("ENTRYPOINT", "CMD"))


@pytest.mark.parametrize("name", [*COMPONENTS, "model-server-torch", "build"])
def test_image_has_the_versions_that_are_tested_together(name: str) -> None:
    assert pins(name) <= pins("dev"), "lock them anew: make lock"


@pytest.mark.parametrize("component", COMPONENTS)
def test_lock_file_has_every_dependency_of_its_component(component: str) -> None:
    project = tomllib.loads((ROOT / component / "pyproject.toml").read_text())["project"]
    wanted = {normal(text) for text in project["dependencies"]}
    locked = {normal(package) for package, _ in pins(component)}
    assert wanted - locked <= {"punctual-admission"}, "lock them anew: make lock"


def test_gateway_and_simulated_model_server_have_no_torch() -> None:
    for name in ("gateway", "operator", "model-server", "lab"):
        assert "torch" not in {package for package, _ in pins(name)}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "manifests").rglob("*.yaml")), ids=lambda path: str(path.name)
)
def test_manifests_name_images_of_this_version(path: Path) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for image in IMAGE.findall(path.read_text()):
        assert image.rpartition(":")[2] == version
