"""Scenario files of the autoscaling experiment."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from punctual_lab.experiments.scenario import (
    Scenario,
    build_scenario,
    known_scenarios,
    read_scenario,
)


@pytest.mark.parametrize("name", known_scenarios())
def test_own_scenarios_can_be_read(name: str) -> None:
    scenario = read_scenario(name)
    assert scenario.seconds > 0
    assert scenario.description


def test_load_is_held_or_goes_evenly() -> None:
    plan = build_scenario(
        "x", {"load": [{"seconds": 10, "load": 2}, {"seconds": 10, "from": 2, "to": 4}]}
    )
    assert [plan.load_at(when) for when in (0, 9.9, 10, 15, 20)] == [2, 2, 2, 3, 0]


def test_arrivals_come_to_the_load() -> None:
    plan = build_scenario("x", {"load": [{"seconds": 4000, "load": 1.5}], "slow": 1.0})
    arrivals = plan.arrivals(3)
    work = sum(0.001 + 0.0084 * arrival.max_tokens for arrival in arrivals)
    assert work / 4000 == pytest.approx(1.5, rel=0.05)
    assert arrivals == plan.arrivals(3)


def test_no_load_is_no_arrivals() -> None:
    assert build_scenario("x", {"load": [{"seconds": 100, "load": 0}]}).arrivals(1) == []


def test_users_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("load: [{seconds: 60, load: 1}]\npod_starts: [30]\n")
    scenario = read_scenario(str(path))
    assert (scenario.name, scenario.pod_starts) == ("mine", (30.0,))


WRONG: list[tuple[Any, str]] = [
    ([], "must be an object with `load`"),
    ({"load": []}, "must be an object with `load`"),
    ({"load": [1]}, "a segment must be an object"),
    ({"load": [{"seconds": -1, "load": 1}]}, "`seconds` of a segment must be a number from 0"),
    ({"load": [{"seconds": 1, "load": True}]}, "`load` of a segment must be a number"),
    ({"load": [{"seconds": 1, "from": 1}]}, "`to` of a segment must be a number"),
    ({"load": [{"seconds": 1, "load": 1}], "pod": 1}, "has `pod`; must be load, "),
    ({"load": [{"seconds": 1, "load": 1}], "retries": "x"}, "retries must be one of none"),
    ({"load": [{"seconds": 1, "load": 1}], "pods": "x"}, "`pods` must be a number from 1 to 1000"),
    ({"load": [{"seconds": 1, "load": 1}], "pods": 30}, "`pods` must be from `minimum` 1 to"),
    ({"load": [{"seconds": 1, "load": 1}], "pod_starts": 60}, "must be a list of seconds"),
    ({"load": [{"seconds": 1, "load": 1}], "targets": {"x": 1}}, "`targets` must name signals"),
]


@pytest.mark.parametrize(("given", "message"), WRONG)
def test_wrong_scenario_names_the_field(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_scenario("x", given)


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be a file or one of"):
        read_scenario(str(tmp_path / "none.yaml"))
    broken = tmp_path / "broken.yaml"
    broken.write_text("load: [")
    with pytest.raises(ValueError, match="must be YAML"):
        read_scenario(str(broken))


def test_readme_names_every_field_and_its_example_is_one() -> None:
    text = (Path(__file__).parents[3] / "lab" / "README.md").read_text()
    part = text.split("## Scenarios of the autoscaler")[1].split("\n## ")[0]
    for field in dataclasses.fields(Scenario):
        assert field.name in {"name", "segments"} or f"`{field.name}`" in part, field.name
    example = part.split("```yaml\n")[1].split("```")[0]
    assert build_scenario("example", yaml.safe_load(example)).seconds == 1800
