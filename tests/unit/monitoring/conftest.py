"""The chart, rendered as for its own tests, and Prometheus' programs."""

from __future__ import annotations

import pytest

from charts.tools.prometheus import PrometheusError, prometheus_program
from unit.chart.conftest import render, render_objects

__all__ = ["render", "render_objects"]


@pytest.fixture(scope="session", autouse=True)
def _need_prometheus() -> None:
    try:
        prometheus_program("promtool")
    except PrometheusError as error:
        pytest.fail(str(error), pytrace=False)
