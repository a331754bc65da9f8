"""The dashboard as Grafana would import it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest

from charts.tools.dashboard import WIDTH, build_dashboard
from charts.tools.panel import SELECTOR
from charts.tools.panels import ROWS
from punctual_admission.outcomes import Outcome

Json = dict[str, Any]
DASHBOARD = build_dashboard()
PANELS: list[Json] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def cells(panel: Json) -> Iterator[tuple[int, int]]:
    """The cells of the grid that a panel covers."""
    place = panel["gridPos"]
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    every = DASHBOARD["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    for one, other in combinations(every, 2):
        assert set(cells(one)).isdisjoint(cells(other))


def test_panels_fill_the_width_without_gaps() -> None:
    taken = {cell for panel in DASHBOARD["panels"] for cell in cells(panel)}
    height = max(y for _, y in taken) + 1
    assert len(taken) == WIDTH * height


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_panel_is_explained_and_asks_the_chosen_data_source(panel: Json) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    for source in (panel["datasource"], *(target["datasource"] for target in panel["targets"])):
        assert source == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_panel_shows_the_chosen_policies(panel: Json) -> None:
    for target in panel["targets"]:
        expression = target["expr"]
        assert SELECTOR in expression or "_operator_" in expression or "_adapter_" in expression


def test_variables_are_those_that_queries_use() -> None:
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "namespace", "policy"]


def test_titles_are_unique() -> None:
    titles = [panel.title for row in ROWS for panel in row.panels]
    assert len(set(titles)) == len(titles)


def test_every_outcome_has_its_colour() -> None:
    (panel,) = (one for one in PANELS if one["title"] == "Requests by how they ended")
    named = {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]}
    assert named == {outcome.value for outcome in Outcome}


def test_chart_hands_it_to_grafanas_sidecar(render_objects: Callable[..., list[Json]]) -> None:
    values = {"dashboard": {"enabled": True, "annotations": {"grafana_folder": "LLM"}}}
    (found,) = (one for one in render_objects(values) if one["kind"] == "ConfigMap")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["metadata"]["annotations"] == {"grafana_folder": "LLM"}
    assert json.loads(found["data"]["punctual.json"]) == DASHBOARD


def test_chart_installs_none_unless_asked(render_objects: Callable[..., list[Json]]) -> None:
    assert not any(one["kind"] == "ConfigMap" for one in render_objects())
