"""Traces depend on their arguments alone and hold what they were asked for."""

from __future__ import annotations

import gzip
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual_lab.traces import (
    REFERENCE_MIX,
    LengthMix,
    build_burst_trace,
    build_periodic_burst_trace,
    build_poisson_trace,
    fit_to_work,
    offered_seconds,
    rate_for_load,
    read_recorded_trace,
    with_tiers,
)

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@given(seed=st.integers(0, 2**32), rate=st.floats(0.5, 50.0))
def test_poisson_trace_is_reproducible_and_ordered(seed: int, rate: float) -> None:
    """The same seed gives the same trace, indexed from 0 in time order inside the duration."""
    trace = build_poisson_trace(rate_per_second=rate, duration_seconds=5.0, seed=seed)
    assert trace == build_poisson_trace(rate_per_second=rate, duration_seconds=5.0, seed=seed)
    assert [request.index for request in trace] == list(range(len(trace)))
    times = [request.at_seconds for request in trace]
    assert times == sorted(times)
    assert all(0 <= at < 5.0 for at in times)


def test_poisson_trace_has_the_rate_and_the_mix() -> None:
    """Over many arrivals the rate and the shares of lengths come out as asked."""
    trace = build_poisson_trace(rate_per_second=20.0, duration_seconds=1000.0, seed=3)
    assert len(trace) == pytest.approx(20_000, rel=0.03)
    counts = Counter(request.max_tokens for request in trace)
    shares = [counts[tokens] / len(trace) for tokens in REFERENCE_MIX.tokens]
    assert shares == pytest.approx(REFERENCE_MIX.shares, abs=0.015)


def test_different_seeds_differ() -> None:
    """Another seed is another trace."""
    a, b = (
        build_poisson_trace(rate_per_second=10.0, duration_seconds=10.0, seed=seed)
        for seed in (1, 2)
    )
    assert a != b


def test_burst_leaves_at_once() -> None:
    """All requests of a burst have time 0 and carry prompt and deadline."""
    trace = build_burst_trace(count=30, seed=1, prompt_tokens=5, deadline_ms=2000)
    assert len(trace) == 30
    assert {(r.at_seconds, r.prompt_tokens, r.deadline_ms) for r in trace} == {(0.0, 5, 2000)}


def test_periodic_bursts_start_on_the_period() -> None:
    """Bursts start at 0, T, 2T before the end."""
    trace = build_periodic_burst_trace(count=3, period_seconds=10, duration_seconds=30, seed=1)
    assert Counter(r.at_seconds for r in trace) == {0.0: 3, 10.0: 3, 20.0: 3}


@pytest.mark.parametrize(
    ("tokens", "shares", "message"),
    [
        ((), (), "one share for each length"),
        ((4,), (0.5, 0.5), "one share for each length"),
        ((4, 16), (0.5, 0.4), "sum to 1"),
        ((4, 16), (1.5, -0.5), "non-negative"),
        ((0, 16), (0.5, 0.5), "must be at least 1"),
    ],
)
def test_a_mix_that_cannot_be_drawn_is_refused(
    tokens: tuple[int, ...], shares: tuple[float, ...], message: str
) -> None:
    """A mix without one share a length, or whose shares are no distribution, names the fault."""
    with pytest.raises(ValueError, match=message):
        LengthMix(tokens, shares)


def test_load_is_rate_times_mean_service() -> None:
    """A rate from a load offers that load again."""
    seconds = {4: 0.04, 16: 0.13, 64: 0.5}
    mean = REFERENCE_MIX.mean_of(seconds)
    rate = rate_for_load(2.0, mean)
    trace = build_poisson_trace(rate_per_second=rate, duration_seconds=2000, seed=5)
    assert offered_seconds(trace, seconds) / 2000 == pytest.approx(2.0, rel=0.05)


@given(st.integers(0, 1000))
def test_a_fitted_trace_asks_for_the_work_within_its_duration(seed: int) -> None:
    """To half a request; its requests are the first that were drawn, evenly drawn out."""
    seconds = {4: 0.04, 16: 0.13, 64: 0.5}
    drawn = build_poisson_trace(rate_per_second=15, duration_seconds=60, seed=seed)
    fitted = fit_to_work(drawn, seconds, 40.0, 20.0)
    assert offered_seconds(fitted, seconds) == pytest.approx(40.0, abs=0.25)
    assert 0 < len(fitted) < len(drawn)
    assert fitted[-1].at_seconds < 20
    scale = fitted[0].at_seconds / drawn[0].at_seconds
    for one, other in zip(fitted, drawn, strict=False):
        assert one.max_tokens == other.max_tokens
        assert one.at_seconds == pytest.approx(other.at_seconds * scale)


def test_a_trace_that_asks_for_less_is_not_drawn_out() -> None:
    """There is no work to add."""
    drawn = build_poisson_trace(rate_per_second=15, duration_seconds=2, seed=1)
    assert fit_to_work(drawn, {4: 0.04, 16: 0.13, 64: 0.5}, 1000.0, 2.0) == drawn


@pytest.mark.parametrize(("load", "mean"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_a_load_or_service_of_nothing_is_refused(load: float, mean: float) -> None:
    """Neither load nor service time may be zero or negative."""
    with pytest.raises(ValueError, match="must be above 0"):
        rate_for_load(load, mean)


def test_recorded_trace_is_read_clipped_and_scaled(tmp_path: Path) -> None:
    """Seven-digit fractions are read, times start at 0 and scale, lengths are cut to the maxima."""
    path = tmp_path / "trace.csv.gz"
    lines = [
        "2023-11-16 18:15:46.6805900,374,44",
        "2023-11-16 18:15:50.6805900,3960,1090",
        "2023-11-16 18:15:51.6805900,10,0",
    ]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(HEADER + "\n".join(lines) + "\n")
    trace = read_recorded_trace(
        path, time_scale=0.5, max_prompt_tokens=900, max_output_tokens=512, deadline_ms=10_000
    )
    assert [r.at_seconds for r in trace] == [0.0, 2.0, 2.5]
    assert [(r.prompt_tokens, r.max_tokens) for r in trace] == [(374, 44), (900, 512), (10, 1)]
    assert len(read_recorded_trace(path, limit=1)) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("2023-11-16 18:15:46,ten,44\n", "line 2"),
        ("yesterday,10,44\n", "line 2"),
        ("2023-11-16 18:15:46,10\n", "line 2"),
        ("2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1\n", "go backwards"),
    ],
)
def test_a_recorded_row_that_cannot_be_read_is_named(
    tmp_path: Path, body: str, message: str
) -> None:
    """The error names the line and what a line must have."""
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + body, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_recorded_trace(path)


def test_tiers_are_drawn_by_their_shares() -> None:
    """What is left has none, and the same seed draws the same."""
    plain = build_poisson_trace(rate_per_second=50, duration_seconds=40, seed=1)
    trace = with_tiers(plain, {"gold": 0.3, "batch": 0.5}, seed=2)
    share = Counter(request.tier for request in trace)
    assert share["gold"] / len(trace) == pytest.approx(0.3, abs=0.05)
    assert share[""] / len(trace) == pytest.approx(0.2, abs=0.05)
    assert trace == with_tiers(plain, {"gold": 0.3, "batch": 0.5}, seed=2)
    assert with_tiers(plain, {}, seed=2) == plain


@pytest.mark.parametrize("shares", [{"a": 0.7, "b": 0.4}, {"a": -0.1}])
def test_shares_of_more_than_all_are_refused(shares: dict[str, float]) -> None:
    """Or of less than nothing."""
    with pytest.raises(ValueError, match="must be non-negative and sum to at most 1"):
        with_tiers((), shares, seed=1)
