"""The event simulation and the last word, against hand-made schedules and against the real loop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual_model_server.engine.loop import EngineLoop
from punctual_model_server.engine.protocol import Calibration, Step
from punctual_model_server.engine.runner import Shape
from punctual_model_server.engine.sim import SimRunner
from punctual_model_server.forecast import (
    Finish,
    Work,
    drain_seconds,
    forecast,
    last_word,
    under_way,
    wait_seconds,
    work_seconds,
)
from support.model_server import ManualClock, submit

MODEL = Calibration((1.0, 1.5), 2.0, 0.1, 0.0)


def running(tokens: int, deadline: float | None = None) -> Work:
    return Work(0, tokens, deadline)


def test_alone_a_request_takes_its_prefill_and_a_step_for_each_further_token() -> None:
    assert forecast(MODEL, 1.0, [], [Work(10, 5)]) == [Finish(3.0, 7.0)]


def test_a_joining_request_holds_the_others_up_and_then_shares_the_steps() -> None:
    first, second = forecast(MODEL, 1.0, [running(4)], [Work(10, 3)])
    assert second == Finish(3.0, 6.0)
    assert first.end == 3.0 + 2 * 1.5 + 2 * 1.0


def test_a_waiting_request_starts_when_a_slot_is_free() -> None:
    finishes = forecast(MODEL, 1.0, [running(2), running(4)], [Work(10, 1)])
    assert [f.end for f in finishes] == [3.0, 3.0 + 3.0 + 2 * 1.0, 6.0]


def test_times_are_multiplied_by_the_speed_ratio() -> None:
    assert forecast(MODEL, 2.0, [], [Work(10, 5)]) == [Finish(6.0, 14.0)]


def test_the_step_under_way_counts_as_far_as_it_has_come() -> None:
    done = under_way(MODEL, 2.0, [running(2)], [], 0.5)
    assert forecast(MODEL, 1.0, [running(2)], [], done)[0].end == 1.75


def test_silence_longer_than_a_step_counts_as_one_step_at_most() -> None:
    assert under_way(MODEL, 1.0, [running(2)], [], 60.0) == 1.0
    assert under_way(MODEL, 1.0, [running(2)], [Work(10, 5)], 60.0) == 3.0
    assert under_way(MODEL, 1.0, [running(2), running(2)], [Work(10, 5)], 60.0) == 1.5


def test_an_idle_engine_has_nothing_under_way() -> None:
    assert under_way(MODEL, 1.0, [], [], 60.0) == 0.0
    assert forecast(MODEL, 1.0, [], []) == []


def test_drain_and_wait_tell_when_all_is_done_and_when_a_slot_is_free() -> None:
    finishes = forecast(MODEL, 1.0, [running(2), running(4)], [Work(10, 1)])
    assert drain_seconds(finishes) == 8.0
    assert wait_seconds(2, finishes) == 6.0
    assert wait_seconds(2, finishes[:1]) == 0.0
    assert drain_seconds([]) == 0.0


def test_work_in_flight_is_prefills_plus_each_tokens_share_of_a_step() -> None:
    assert work_seconds(MODEL, 2.0, [running(4)], [Work(10, 3)]) == 2 * (3.0 + (4 + 2) * 0.75)
    assert work_seconds(MODEL, 1.0, [], []) == 0.0


def test_the_last_word_refuses_what_would_end_after_its_deadline() -> None:
    word = last_word(MODEL, 1.0, [running(4)], [], Work(10, 3, 5.9))
    assert (word.accepted, word.predicted, word.resident_made_late) == (False, 6.0, False)
    assert last_word(MODEL, 1.0, [running(4)], [], Work(10, 3, 6.0)).accepted


def test_the_last_word_protects_a_resident_that_is_on_time_without_the_newcomer() -> None:
    word = last_word(MODEL, 1.0, [running(4, deadline=5.0)], [], Work(10, 3, 60.0))
    assert not word.accepted
    assert word.resident_made_late


def test_a_resident_that_is_late_anyway_does_not_stand_in_the_way() -> None:
    assert last_word(MODEL, 1.0, [running(4, deadline=1.0)], [], Work(10, 3, 60.0)).accepted


def test_a_first_token_deadline_is_tested_against_the_first_token() -> None:
    word = last_word(MODEL, 1.0, [], [], Work(10, 50, 3.5, first_token_only=True))
    assert (word.accepted, word.predicted) == (True, 3.0)


requests = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=12)


@settings(deadline=None)
@given(requests, st.integers(1, 4))
def test_the_forecast_is_what_the_loop_then_does(
    lengths: list[tuple[int, int]], slots: int
) -> None:
    model = Calibration(tuple(1.0 + 0.25 * b for b in range(slots)), 0.5, 0.01, 0.0)
    clock = ManualClock()
    shape = Shape(slots, 1024, 300, 299, 8, "sim")
    runner = SimRunner(shape, model, clock=clock, sleep=clock.sleep)
    ended: dict[int, float] = {}

    def note(step: Step) -> None:
        ended.update({e.rid: clock.now - 100.0 for e in step.events if e.finish is not None})

    loop = EngineLoop(runner, lambda _: [], note, clock)
    loop.take([submit(i, n, prompt=[1] * p) for i, (p, n) in enumerate(lengths)])
    predicted = forecast(model, 1.0, [], [Work(p, n) for p, n in lengths])
    while loop.turn():
        pass
    assert [ended[i] for i in range(len(lengths))] == pytest.approx([f.end for f in predicted])
