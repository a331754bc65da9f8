"""The page about autoscaling names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from punctual_gateway.signals import GAUGES, WINDOWS
from punctual_operator.adapter.series import SERIES

TEXT = (Path(__file__).parents[3] / "docs" / "autoscaling.md").read_text()


@pytest.mark.parametrize(
    "name",
    [*SERIES, *GAUGES, *WINDOWS, *(gauge for gauge, _ in GAUGES.values())],
)
def test_every_metric_and_signal_is_documented(name: str) -> None:
    assert f"`{name}" in TEXT


def test_tests_that_the_page_names_are_there() -> None:
    folder = Path(__file__).parents[2]
    known = "".join(
        path.read_text()
        for part in ("unit/autoscale", "integration/autoscale", "cluster")
        for path in (folder / part).rglob("test_*.py")
    )
    for name in re.findall(r"`(test_[a-z0-9_.]+)", TEXT):
        assert name.endswith(".py") or f"def {name}" in known, name
