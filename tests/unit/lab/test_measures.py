"""Quantiles and line fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual_lab.measures import fit_line, median, quantile, quantiles, relative_errors

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50)


@given(values=NUMBERS, share=st.floats(0.01, 1.0))
def test_quantile_is_the_smallest_value_that_covers_the_share(
    values: list[float], share: float
) -> None:
    """At least the share lies at or below it, and less than the share lies below it."""
    found = quantile(sorted(values), share)
    assert found is not None
    assert sum(v <= found for v in values) >= share * len(values) - 1e-9
    assert sum(v < found for v in values) < share * len(values) + 1e-9


def test_quantiles_of_nothing_are_none() -> None:
    """No values, no quantiles."""
    assert quantile([], 0.5) is None
    assert quantiles([]) == {"p50": None, "p99": None}


def test_quantiles_are_rounded() -> None:
    """Quantiles carry the digits asked for."""
    assert quantiles([1.23456, 2.0], digits=2) == {"p50": 1.23, "p99": 2.0}


def test_median_of_an_even_number_is_the_mean_of_the_middle_two() -> None:
    """Medians follow the usual definition; of nothing there is none."""
    assert median([4.0, 1.0, 3.0]) == 3.0
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5
    with pytest.raises(ValueError, match="at least one"):
        median([])


@given(base=st.floats(0.1, 10), slope=st.floats(0.0, 10))
def test_a_line_is_found_again(base: float, slope: float) -> None:
    """Points on a line give that line."""
    xs = [1.0, 2.0, 8.0, 64.0]
    line = fit_line(xs, [base + slope * x for x in xs])
    assert line.base == pytest.approx(base, rel=1e-6, abs=1e-6)
    assert line.slope == pytest.approx(slope, rel=1e-6, abs=1e-6)
    assert line.at(10) == pytest.approx(base + slope * 10, rel=1e-6)


@pytest.mark.parametrize(("xs", "ys"), [([1, 1], [2, 2]), ([1, 2], [0, 1]), ([], [])])
def test_points_that_determine_no_line_are_refused(xs: list[float], ys: list[float]) -> None:
    """One x, or a y that is not above 0, is an error that says so."""
    with pytest.raises(ValueError, match="cannot fit a line"):
        fit_line(xs, ys)


def test_relative_errors_are_taken_of_the_actual() -> None:
    """An error is a share of the actual value."""
    assert relative_errors([1.5, 1.0], [1.0, 2.0]) == [0.5, 0.5]
