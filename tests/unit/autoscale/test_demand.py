"""The arithmetic of the signals on virtual time."""

from __future__ import annotations

import random

import pytest

from punctual_admission.demand import LONG_SECONDS, STEADY_WINDOWS, Demand, Reading


def known(demand: Demand, now: float, backlog: float = 0.0) -> Reading:
    reading = demand.read(now, backlog)
    assert reading is not None
    return reading


def feed(demand: Demand, begin: float, end: float, load: float, cost: float = 0.1) -> float:
    """Even arrivals of one cost that come to `load` GPU-seconds per second; returns `end`."""
    for index in range(round((end - begin) * load / cost)):
        demand.arrive(begin + index * cost / load, cost, 10, 20)
    return end


def test_nothing_is_known_before_one_window_has_passed() -> None:
    demand = Demand(100.0)
    feed(demand, 100.0, 160.0, 1.0)
    assert demand.read(159.9, 0.0) is None
    assert demand.read(160.0, 0.0) is not None


def test_quiet_pool_reads_zero_and_not_unknown() -> None:
    reading = known(Demand(0.0), 60.0)
    assert reading.offered_load == 0
    assert reading.rejection_share == 0
    assert reading.queue_wait_mean == 0
    assert reading.queue_wait_p95 == 0
    assert reading.prediction_ratio == 1


def test_load_is_the_work_that_arrived_per_second() -> None:
    demand = Demand(0.0)
    now = feed(demand, 0.0, 120.0, 2.5)
    reading = known(demand, now)
    assert reading.offered_load_long == pytest.approx(2.5, rel=0.01)
    assert reading.offered_load == pytest.approx(2.5, rel=0.02)
    assert reading.arrivals_per_second == pytest.approx(25, rel=0.01)
    assert (reading.typical_prompt_tokens, reading.typical_output_tokens) == (10, 20)


def test_refused_work_counts_as_admitted_work_does() -> None:
    demand = Demand(0.0)
    for second in range(60):
        demand.arrive(float(second), 0.5, 1, 1)
        demand.reject(float(second))
    reading = known(demand, 60.0)
    assert reading.offered_load_long == pytest.approx(0.5)
    assert reading.rejections_per_second == 1
    assert reading.rejection_share == 1


def test_short_window_shows_a_step_within_ten_seconds() -> None:
    demand = Demand(0.0)
    feed(demand, 0.0, 100.0, 0.6)
    now = feed(demand, 100.0, 110.0, 4.8)
    reading = known(demand, now)
    assert reading.offered_load_long < 1.5
    assert reading.offered_load == pytest.approx(4.8, rel=0.05)
    assert reading.load_seconds == 10


def test_steady_load_is_averaged_over_ten_minutes() -> None:
    demand = Demand(0.0)
    assert known(demand, feed(demand, 0.0, 1200.0, 2.0)).load_seconds == 600


def test_fall_of_the_load_shows_within_a_minute() -> None:
    demand = Demand(0.0)
    feed(demand, 0.0, 600.0, 4.8)
    now = feed(demand, 600.0, 630.0, 0.6)
    assert known(demand, now).offered_load == pytest.approx(0.6, abs=0.1)


def test_short_burst_is_over_when_it_is_over() -> None:
    demand = Demand(0.0)
    feed(demand, 0.0, 300.0, 1.0)
    feed(demand, 300.0, 330.0, 6.0)
    assert known(demand, 330.0).offered_load == pytest.approx(6.0, rel=0.1)
    feed(demand, 330.0, 360.0, 1.0)
    assert known(demand, 360.0).offered_load == pytest.approx(1.0, rel=0.1)


def test_one_huge_request_is_no_change_of_the_load() -> None:
    demand = Demand(0.0)
    feed(demand, 0.0, 600.0, 0.5)
    demand.arrive(595.0, 60.0, 10, 10_000)
    reading = known(demand, 600.0)
    assert reading.load_seconds == 600
    assert reading.offered_load == pytest.approx(0.6, rel=0.05)


def test_noise_of_the_arrivals_moves_the_load_little() -> None:
    """Ten requests a second for an hour, looked at every 15 seconds."""
    demand, rng, now, seen = Demand(0.0), random.Random(1), 0.0, list[float]()
    for look in range(15, 3600, 15):
        while now < look:
            now += rng.expovariate(10.0)
            demand.arrive(now, 0.1, 1, 1)
        if look >= 300:
            seen.append(known(demand, float(look)).offered_load)
    assert 0.9 < min(seen) < max(seen) < 1.1


def test_backlog_adds_what_is_needed_to_drain_it() -> None:
    assert known(Demand(0.0, drain_seconds=30.0), 60.0, backlog=6.0).offered_load == 0.2


def test_load_falls_to_zero_one_window_after_the_last_arrival() -> None:
    demand = Demand(0.0)
    feed(demand, 0.0, 60.0, 1.0)
    assert known(demand, 119.0).offered_load_long > 0
    assert known(demand, 121.0).offered_load == 0
    assert known(demand, 121.0).offered_load_long == 0


def test_wait_is_unknown_while_everything_is_refused() -> None:
    demand = Demand(0.0)
    demand.arrive(30.0, 1.0, 1, 1)
    demand.reject(30.0)
    reading = known(demand, 60.0)
    assert reading.queue_wait_p95 is None
    assert reading.queue_wait_mean is None


def test_quantile_of_the_wait_is_right_within_a_bucket() -> None:
    demand = Demand(0.0)
    for milliseconds in range(1, 1001):
        demand.start(30.0, milliseconds / 1000)
    reading = known(demand, 60.0)
    assert reading.queue_wait_mean == pytest.approx(0.5005)
    assert reading.queue_wait_p95 is not None
    assert 0.95 <= reading.queue_wait_p95 < 0.95 * 1.1


def test_waits_shorter_than_a_millisecond_read_as_none() -> None:
    demand = Demand(0.0)
    demand.start(30.0, -1.0)
    demand.start(30.0, 0.0004)
    assert known(demand, 60.0).queue_wait_p95 == 0


def test_prediction_ratio_is_kept_while_nothing_completes() -> None:
    demand = Demand(0.0)
    demand.complete(30.0, 3.0, 2.0)
    assert known(demand, 60.0).prediction_ratio == 1.5
    assert known(demand, 300.0).prediction_ratio == 1.5


def test_memory_is_bounded_by_the_window() -> None:
    demand = Demand(0.0)
    for second in range(10_000):
        demand.arrive(float(second), 1.0, 1, 1)
    assert len(demand._seconds) <= LONG_SECONDS * STEADY_WINDOWS + 1


def test_event_with_an_older_time_counts_in_the_newest_second() -> None:
    demand = Demand(0.0)
    demand.arrive(59.0, 6.0, 1, 1)
    demand.arrive(58.0, 6.0, 1, 1)
    assert known(demand, 60.0).offered_load_long == pytest.approx(0.2)


@pytest.mark.parametrize("windows", [(0, 10), (20, 10)])
def test_wrong_windows_are_refused(windows: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must be 1 <= short <= long"):
        Demand(0.0, short_seconds=windows[0], long_seconds=windows[1])


def test_wrong_drain_time_is_refused() -> None:
    with pytest.raises(ValueError, match="must be positive, got 0"):
        Demand(0.0, drain_seconds=0)
