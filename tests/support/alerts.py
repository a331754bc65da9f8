"""What the alert rules name."""

from __future__ import annotations

import re

import yaml

from charts.tools.generate import CHART
from support.prometheus import GROUPING, MATCHER, SELECTOR

TARGET_LABELS = {"namespace"}
"""Labels that Prometheus adds."""


def missing_series(component: str, exported: str) -> list[str]:
    """The metrics and labels of a component's alerts that its `/metrics` text has not."""
    text = (CHART / "files" / "alerts" / f"{component}.yaml").read_text()
    rules = yaml.safe_load(text)["groups"][0]["rules"]
    absent = []
    for rule in rules:
        grouped = ",".join(GROUPING.findall(rule["expr"])).replace(" ", "").split(",")
        for name, matchers in SELECTOR.findall(rule["expr"]):
            labels = {label for label, _, _ in MATCHER.findall(matchers)} | {*grouped} - {""}
            absent += [
                f"{name} with {label}"
                for label in sorted(labels - TARGET_LABELS)
                if not re.search(rf'^{name}{{.*\b{label}="', exported, re.MULTILINE)
            ]
            if not re.search(rf"^{name}[{{ ]", exported, re.MULTILINE):
                absent.append(name)
    return absent
