"""How far back one rate reaches."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from punctual_admission.change import steady_seconds

LEAST = 10
DEVIATIONS = 4.0
SIZES = (0.1, 0.3, 1.2)


def drawn(rates: list[float], seed: int) -> tuple[list[float], list[float]]:
    """Poisson arrivals per second of these rates, of three sizes: sums and sums of squares."""
    rng = random.Random(seed)
    work, squares = [], []
    for rate in rates:
        sizes, now = [], rng.expovariate(rate)
        while now < 1:
            sizes.append(rng.choice(SIZES))
            now += rng.expovariate(rate)
        work.append(sum(sizes))
        squares.append(sum(size * size for size in sizes))
    return work, squares


def span(work: list[float], squares: list[float]) -> int:
    return steady_seconds(work, squares, least=LEAST, deviations=DEVIATIONS)


def test_noise_is_no_change() -> None:
    """At most one of a hundred spans of ten minutes is cut."""
    whole = sum(span(*drawn([8.0] * 600, seed)) == 600 for seed in range(100))
    assert whole >= 99


def test_step_is_found_where_it_was() -> None:
    for seed in range(20):
        found = span(*drawn([2.0] * 570 + [16.0] * 30, seed))
        assert 20 <= found <= 40


def test_newest_of_several_changes_counts() -> None:
    for seed in range(20):
        assert 30 <= span(*drawn([2.0] * 300 + [30.0] * 60 + [2.0] * 40, seed)) <= 50


def test_nothing_at_all_is_steady() -> None:
    assert span([0.0] * 120, [0.0] * 120) == 120
    assert span([], []) == 0


def test_load_that_stops_has_stopped() -> None:
    work, squares = drawn([8.0] * 300, 1)
    assert span(work + [0.0] * 20, squares + [0.0] * 20) == 20


@given(st.lists(st.floats(0, 1e6), max_size=80))
def test_span_is_never_shorter_than_the_least_nor_longer_than_all(work: list[float]) -> None:
    found = span(work, [one * one for one in work])
    assert min(LEAST, len(work)) <= found <= len(work)
