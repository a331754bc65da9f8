"""The operator's README names everything that there is."""

from __future__ import annotations

import re
from pathlib import Path

from punctual_operator import metrics
from punctual_operator.conditions import ConditionType
from punctual_operator.diagnosis import gateway

SOURCES = Path(metrics.__file__).parent
README = (SOURCES.parents[1] / "README.md").read_text()
GIVEN = re.compile(r'\b(?:false|unknown|true|Finding)\(\s*KIND,(?:\s*Status\.\w+,)?\s*"(\w+)"')
SUCCESS = {"Available", "Discovered", "Applied", "Active", "Attainable"}


def test_every_reason_of_a_condition_is_listed() -> None:
    texts = [path.read_text() for path in (SOURCES / "diagnosis").glob("*.py")]
    reasons = {reason for text in texts for reason in GIVEN.findall(text)}
    reasons |= {reason for reason, _ in gateway.TROUBLES.values()}
    assert len(reasons) > 20
    assert [one for one in sorted(reasons - SUCCESS) if f"`{one}`" not in README] == []


def test_every_condition_is_listed() -> None:
    assert [kind for kind in ConditionType if kind not in README] == []


def test_every_metric_is_listed() -> None:
    names = [family.name for family in metrics.Metrics().registry.collect()]
    assert [name for name in names if name not in README] == []
