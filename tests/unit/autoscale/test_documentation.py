"""The page about autoscaling names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from punctual_gateway.signals import GAUGES, WINDOWS
from punctual_operator.adapter.metrics import AdapterMetrics
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
    parts = ("unit/autoscale", "integration/autoscale", "integration/gateway", "cluster", "e2e")
    known = "".join(
        path.read_text() for part in parts for path in (folder / part).rglob("test_*.py")
    )
    for name in re.findall(r"`(test_[a-z0-9_.]+)", TEXT):
        assert name.endswith(".py") or f"def {name}(" in known, name


def test_every_fault_of_others_has_a_test_or_a_reason() -> None:
    """One row each, told by where it was reported."""
    table = TEXT.split("## Known faults of others")[1].split("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 49
    for fault, here in rows:
        assert re.search(r"#[0-9]+|guide", fault), fault
        assert "`test_" in here or len(here) > 20, fault


@pytest.mark.parametrize("name", SERIES)
def test_every_metric_is_read_by_a_command_of_the_page(name: str) -> None:
    assert f'kubectl get --raw "$BASE/namespaces/default/{name}?labelSelector' in TEXT


def test_every_metric_of_the_adapter_is_documented() -> None:
    families = {family.name: family.type for family in AdapterMetrics().registry.collect()}
    assert len(families) == 9
    for name, kind in families.items():
        assert f"`{name}{'_total' if kind == 'counter' else ''}" in TEXT
