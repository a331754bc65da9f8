"""The autoscaler's arithmetic, on the examples of its documentation and beyond."""

from __future__ import annotations

import pytest

from punctual_lab.simulate.hpa import (
    SYNC_SECONDS,
    Autoscaler,
    Behaviour,
    Metric,
    Rate,
    RateKind,
    Target,
)


def value(amount: float | None, target: float = 1.0) -> Metric:
    return Metric(Target.VALUE, target, amount)


def average(amount: float | None, target: float = 0.7) -> Metric:
    return Metric(Target.AVERAGE_VALUE, target, amount)


def decide(metric: Metric, pods: int = 2, ready: int | None = None, maximum: int = 100) -> int:
    hpa = Autoscaler(1, maximum)
    return hpa.decide(0.0, pods, pods if ready is None else ready, [metric])


def test_twice_the_target_doubles_the_pods() -> None:
    assert decide(value(200, 100), pods=2) == 4


@pytest.mark.parametrize(("amount", "wanted"), [(1.09, 3), (0.91, 3), (1.12, 4), (0.5, 2)])
def test_count_stays_within_a_tenth_of_the_target(amount: float, wanted: int) -> None:
    assert decide(value(amount), pods=3) == wanted


def test_value_counts_ready_pods_only() -> None:
    assert decide(value(2.0), pods=4, ready=3) == 6


def test_average_value_asks_for_the_same_count_whatever_there_is() -> None:
    assert [decide(average(4.8), pods=pods) for pods in (4, 5, 6, 9)] == [7, 7, 7, 7]
    assert decide(average(4.8), pods=10) == 7


def test_average_value_is_within_tolerance_of_what_there_is() -> None:
    assert decide(average(4.8), pods=7) == 7
    assert decide(average(5.3), pods=7) == 7
    assert decide(average(5.5), pods=7) == 8


def test_up_is_limited_to_the_larger_of_four_pods_and_double() -> None:
    assert decide(average(70), pods=1) == 5
    assert decide(average(70), pods=10) == 20


def test_rate_counts_what_was_added_within_its_period() -> None:
    hpa = Autoscaler(1, 100)
    assert hpa.decide(0.0, 1, 1, [average(70)]) == 5
    assert hpa.decide(5.0, 5, 1, [average(70)]) == 5
    assert hpa.decide(15.0, 5, 1, [average(70)]) == 10


def test_rate_in_pods_limits_the_way_down() -> None:
    down = Behaviour(down_window=0.0, down_rates=(Rate(RateKind.PODS, 1),))
    assert Autoscaler(1, 10, down).decide(0.0, 6, 6, [average(0.7)]) == 5


def test_percentage_limits_the_way_down() -> None:
    down = Behaviour(down_window=0.0, down_rates=(Rate(RateKind.PERCENT, 50),))
    assert Autoscaler(1, 10, down).decide(0.0, 6, 6, [average(0.7)]) == 3


def test_rate_down_counts_what_was_removed_within_its_period() -> None:
    down = Behaviour(down_window=0.0, down_rates=(Rate(RateKind.PODS, 2, 60.0),))
    hpa = Autoscaler(1, 10, down)
    assert hpa.decide(0.0, 9, 9, [average(0.7)]) == 7
    assert hpa.decide(30.0, 7, 7, [average(0.7)]) == 7
    assert hpa.decide(60.0, 7, 7, [average(0.7)]) == 5


def test_down_waits_until_the_whole_window_agrees() -> None:
    hpa, pods = Autoscaler(1, 20), 7
    pods = hpa.decide(0.0, pods, pods, [average(4.8)])
    for tick in range(1, 20):
        assert hpa.decide(tick * SYNC_SECONDS, pods, pods, [average(1.4)]) == 7
    assert hpa.decide(20 * SYNC_SECONDS, pods, pods, [average(1.4)]) == 2


def test_up_waits_for_a_window_of_its_own() -> None:
    hpa = Autoscaler(1, 20, Behaviour(up_window=30.0))
    assert hpa.decide(0.0, 2, 2, [average(1.4)]) == 2
    assert hpa.decide(15.0, 2, 2, [average(4.8)]) == 2
    assert hpa.decide(45.0, 2, 2, [average(4.8)]) == 6


def test_largest_proposal_wins() -> None:
    assert Autoscaler(1, 20).decide(0.0, 3, 3, [average(1.4), value(2.0)]) == 6


def test_metric_that_cannot_be_read_forbids_to_scale_down() -> None:
    hpa = Autoscaler(1, 20, Behaviour(down_window=0.0))
    assert hpa.decide(0.0, 5, 5, [average(None), value(0.2)]) == 5
    assert hpa.decide(15.0, 5, 5, [average(None), value(2.0)]) == 10
    assert hpa.decide(30.0, 5, 5, [average(None)]) == 5


def test_bounds_hold_at_once() -> None:
    assert decide(average(4.8), pods=9, maximum=3) == 3
    assert Autoscaler(3, 9).decide(0.0, 1, 1, [average(0.0)]) == 3
    assert decide(average(0.0), pods=1) == 1
