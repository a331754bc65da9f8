"""Calibration arithmetic, the speed ratio, and the simulated engine's schedule."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual_model_server.engine.calibration import choose_rows, fit_line, lower_quartile
from punctual_model_server.engine.protocol import Calibration
from punctual_model_server.engine.runner import Draw, Shape
from punctual_model_server.engine.sim import SimRunner, SimTruth
from punctual_model_server.engine.speed import WEIGHT, SpeedRatio
from support.model_server import ManualClock

SHAPE = Shape(4, 1024, 50257, 50256, 8, "sim")
MODEL = Calibration((0.008, 0.009, 0.010, 0.011), 0.01, 0.001, 0.0)
GREEDY = Draw(0.0, 1.0, 0)


def test_a_batch_runs_with_idle_rows_where_that_is_faster() -> None:
    table, rows = choose_rows([(1, 8.0), (2, 14.0), (3, 12.0), (4, 11.0)], 4)
    assert table == (8.0, 11.0, 11.0, 11.0)
    assert rows == [0, 1, 4, 4, 4]


def test_sizes_that_were_not_measured_use_the_next_larger() -> None:
    table, rows = choose_rows([(1, 1.0), (2, 2.0), (4, 4.0)], 4)
    assert table == (1.0, 2.0, 4.0, 4.0)
    assert rows[3] == 4


def test_a_few_disturbed_samples_do_not_move_the_quartile() -> None:
    assert lower_quartile([9.0, 1.0, 1.1, 50.0]) == 1.1
    assert lower_quartile([3.0]) == 3.0


@settings(deadline=None)
@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=16))
def test_the_step_table_never_falls(times: list[float]) -> None:
    table, _ = choose_rows(list(enumerate(times, 1)), len(times))
    assert list(table) == sorted(table)


def test_the_prefill_line_goes_through_points_on_a_line() -> None:
    base, slope = fit_line([(4, 1.4), (32, 4.2), (96, 10.6)])
    assert base == pytest.approx(1.0)
    assert slope == pytest.approx(0.1)


@pytest.mark.parametrize("points", [[(4, 3.0), (32, 2.0)], [(1, 0.1), (10, 10.0)], [(7, 2.0)]])
def test_neither_part_of_the_prefill_line_is_negative(points: list[tuple[int, float]]) -> None:
    base, slope = fit_line(points)
    assert base >= 0.0
    assert slope >= 0.0
    assert base + slope > 0.0


def test_the_ratio_moves_by_its_weight_when_a_window_is_full() -> None:
    speed = SpeedRatio()
    speed.observe(0.2, 0.1)
    assert speed.value == 1.0
    speed.observe(0.2, 0.1)
    assert speed.value == pytest.approx(1.0 + WEIGHT)


def test_the_model_clamps_batches_to_the_slots() -> None:
    assert MODEL.step(0) == 0.008
    assert MODEL.step(99) == 0.011
    assert MODEL.prefill(10) == pytest.approx(0.02)


def test_the_simulated_engine_sleeps_the_model() -> None:
    clock = ManualClock()
    runner = SimRunner(SHAPE, MODEL, clock=clock, sleep=clock.sleep)
    runner.prefill(0, [1] * 100, GREEDY, lambda: True)
    assert clock.now == pytest.approx(100.11)
    runner.step(3)
    assert clock.now == pytest.approx(100.12)


def test_a_sleep_that_overshoots_is_made_up_by_the_next() -> None:
    clock = ManualClock()
    runner = SimRunner(SHAPE, MODEL, clock=clock, sleep=lambda s: clock.sleep(s + 0.0005))
    for _ in range(100):
        runner.step(1)
    assert clock.now == pytest.approx(100.0 + 100 * 0.008 + 0.0005)


def test_idle_time_is_not_made_up() -> None:
    clock = ManualClock()
    runner = SimRunner(SHAPE, MODEL, clock=clock, sleep=clock.sleep)
    runner.step(1)
    clock.sleep(5.0)
    runner.step(1)
    assert clock.now == pytest.approx(105.016)


def test_a_simulated_prefill_is_given_up_when_told() -> None:
    clock = ManualClock()
    runner = SimRunner(SHAPE, MODEL, clock=clock, sleep=clock.sleep)
    assert runner.prefill(0, [1] * 900, GREEDY, lambda: False) is None
    assert clock.now == pytest.approx(100.05)


def test_the_truth_may_differ_from_what_is_published() -> None:
    clock = ManualClock()
    runner = SimRunner(SHAPE, MODEL, SimTruth(speed=2.0), clock, clock.sleep)
    runner.step(1)
    assert clock.now == pytest.approx(100.016)


def test_noise_is_seeded() -> None:
    def end(seed: int) -> float:
        clock = ManualClock()
        runner = SimRunner(SHAPE, MODEL, SimTruth(noise=0.3, seed=seed), clock, clock.sleep)
        for _ in range(20):
            runner.step(2)
        return clock.now

    assert end(1) == end(1)
    assert end(1) != end(2)


def test_simulated_tokens_depend_on_the_request_and_not_on_the_batch() -> None:
    clock = ManualClock()

    def answer(row: int, others: int) -> list[int | None]:
        runner = SimRunner(SHAPE, MODEL, clock=clock, sleep=clock.sleep)
        for other in range(others):
            runner.prefill(other, [other], Draw(1.0, 1.0, other), lambda: True)
        first = runner.prefill(row, [5, 6], Draw(1.0, 1.0, 42), lambda: True)
        return [first, *(runner.step(others + 1)[row] for _ in range(8))]

    assert answer(0, 0) == answer(3, 3)


def test_a_moved_row_keeps_its_tokens() -> None:
    clock = ManualClock()
    runner = SimRunner(SHAPE, MODEL, clock=clock, sleep=clock.sleep)
    alone = SimRunner(SHAPE, MODEL, clock=clock, sleep=clock.sleep)
    for each, row in ((runner, 1), (alone, 0)):
        each.prefill(row, [9], Draw(1.0, 1.0, 3), lambda: True)
    runner.move(1, 0)
    assert runner.step(1) == alone.step(1)


def test_the_end_token_comes_when_its_probability_is_one() -> None:
    clock = ManualClock()
    runner = SimRunner(SHAPE, MODEL, SimTruth(eos_probability=1.0), clock, clock.sleep)
    assert runner.prefill(0, [1], GREEDY, lambda: True) == 50256
