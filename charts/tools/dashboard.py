"""The Grafana dashboard, for whoever is on call: from what callers see down to single pods.

`panels` declares what is shown; here it is laid out from left to right, as Grafana imports it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from charts.tools.panel import Panel
from charts.tools.panels import ROWS

Json = dict[str, Any]

WIDTH = 24
COLOURS = {
    "good": "green",
    "late": "red",
    "refused": "orange",
    "expired": "purple",
    "failed": "dark-red",
    "cancelled": "blue",
}
"""One colour for each way in which a request ends."""


def build_dashboard() -> Json:
    """The dashboard as Grafana imports it."""
    return {
        "uid": "punctual",
        "title": "Punctual",
        "description": "Are answers on time, what is refused and why, and is there enough for it?",
        "tags": ["punctual"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_datasource(), *_variables()]},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_panels()),
    }


def dashboard_text() -> str:
    """The same as JSON."""
    return json.dumps(build_dashboard(), indent=1) + "\n"


def _datasource() -> Json:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "default", "value": "default"},
    }


def _variables() -> Iterator[Json]:
    policies = "punctual_policy_info"
    yield _variable("namespace", "Namespace", f"label_values({policies}, namespace)")
    chosen = f'{policies}{{namespace=~"$namespace"}}'
    yield _variable("policy", "Policy", f"label_values({chosen}, punctual_dev_policy)")


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _source(),
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _source() -> Json:
    return {"type": "prometheus", "uid": "${datasource}"}


def _panels() -> Iterator[Json]:
    number, top = 1, 0
    for row in ROWS:
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            "panels": [],
        }
        number, top, left = number + 1, top + 1, 0
        for panel in row.panels:
            if left + panel.width > WIDTH:
                left, top = 0, top + panel.height
            yield _panel(number, panel, left, top)
            number, left = number + 1, left + panel.width
        top += row.panels[-1].height


def _panel(number: int, panel: Panel, left: int, top: int) -> Json:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _source(),
        "gridPos": {"x": left, "y": top, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(_colours(panel))},
        "options": _stat_options() if panel.kind == "stat" else _series_options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _source(),
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def _defaults(panel: Panel) -> Json:
    found: Json = {"unit": panel.unit}
    if panel.minimum is not None:
        found["min"] = panel.minimum
    if panel.maximum is not None:
        found["max"] = panel.maximum
    if panel.steps:
        steps = [{"value": value, "color": colour} for value, colour in panel.steps]
        found["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        fill = 40 if panel.stacked else 5
        found["custom"] = {"fillOpacity": fill, "stacking": stacking, "showPoints": "never"}
    return found


def _colours(panel: Panel) -> Iterator[Json]:
    if not any(query.legend == "{{outcome}}" for query in panel.queries):
        return
    for outcome, colour in COLOURS.items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        yield {
            "matcher": {"id": "byName", "options": outcome},
            "properties": [{"id": "color", "value": fixed}],
        }


def _stat_options() -> Json:
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    return {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "textMode": "auto",
        "orientation": "auto",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
        "reduceOptions": reduce,
    }


def _series_options(panel: Panel) -> Json:
    legend: Json = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    if panel.stacked:
        # many lines, most of them at zero: what happens now comes first
        legend |= {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull"]}
        legend |= {"sortBy": "Last *", "sortDesc": True}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
