"""The simulated engine: prefill between steps, one token a step for everybody."""

from __future__ import annotations

import pytest

from punctual_admission.service_time import ServiceModel
from punctual_lab.simulate.engine import NEVER, Engine

ONE = ServiceModel((0.01,), 0.05)
TWO = ServiceModel((0.01, 0.016), 0.05, 0.001)


def drain(engine: Engine[str]) -> dict[str, float]:
    """Run to the end; when each request ended."""
    ended = {}
    while engine.ends != NEVER:
        now = engine.ends
        engine.tell(now)
        for key in engine.finish():
            ended[key] = now
        engine.resume()
    return ended


def test_a_request_alone_takes_its_prefill_and_a_step_for_each_further_token() -> None:
    """prefill(P) + (n - 1) * T(1)."""
    engine: Engine[str] = Engine(TWO)
    engine.submit("a", 10, 5, 1.0)
    assert drain(engine)["a"] == pytest.approx(1.0 + 0.06 + 4 * 0.01)


def test_a_second_request_is_taken_up_at_the_next_boundary() -> None:
    """Its prefill holds up the first one, then both make a token every T(2)."""
    engine: Engine[str] = Engine(TWO)
    engine.submit("a", 0, 11, 0.0)
    engine.submit("b", 0, 3, 0.075)
    # a: first token 0.05, steps to 0.08; b: prefill to 0.13, two common steps to 0.162.
    ended = drain(engine)
    assert ended["b"] == pytest.approx(0.162)
    assert ended["a"] == pytest.approx(0.162 + 5 * 0.01)


def test_a_full_engine_lets_others_wait() -> None:
    """With one slot the second starts when the first ends."""
    engine: Engine[str] = Engine(ONE)
    engine.submit("a", 0, 3, 0.0)
    engine.submit("b", 0, 1, 0.01)
    assert drain(engine) == {"a": pytest.approx(0.07), "b": pytest.approx(0.12)}


def test_tokens_are_told_once_and_at_their_boundaries() -> None:
    """What came is told when somebody looks, the rest at the end."""
    engine: Engine[str] = Engine(ONE)
    engine.submit("a", 0, 11, 0.0)
    assert engine.tell(0.04) == []
    told = [(round(when, 9), keys, tokens) for when, keys, tokens in engine.tell(0.076)]
    assert told == [(0.05, ["a"], 1), (0.07, ["a"], 2)]
    assert engine.tell(0.077) == []
    ((when, keys, tokens),) = engine.tell(engine.ends)
    assert (when, keys, tokens) == (engine.ends, ["a"], 8)
    assert engine.finish() == ["a"]


def test_looking_changes_nothing() -> None:
    """The end is the same whether or not progress was asked for."""
    watched: Engine[str] = Engine(TWO)
    alone: Engine[str] = Engine(TWO)
    for engine in (watched, alone):
        engine.submit("a", 0, 40, 0.0)
    for look in range(30):
        watched.tell(look / 100)
    assert drain(watched) == drain(alone)


def test_a_cancelled_request_is_gone_before_the_next_step() -> None:
    """The step under way ends, and the slot is free then."""
    engine: Engine[str] = Engine(ONE)
    engine.submit("a", 0, 100, 0.0)
    engine.submit("b", 0, 1, 0.01)
    engine.tell(0.075)
    engine.cancel("a", 0.075)
    assert engine.ends == pytest.approx(0.08)
    assert drain(engine) == {"b": pytest.approx(0.13)}


def test_a_cancelled_prefill_ends_and_yields_nothing() -> None:
    """Cancelled while its prompt is read: no token, no steps."""
    engine: Engine[str] = Engine(ONE)
    engine.submit("a", 0, 100, 0.0)
    engine.cancel("a", 0.02)
    assert engine.ends == pytest.approx(0.05)
    assert drain(engine) == {}
    assert engine.load == 0


def test_a_cancelled_waiting_request_never_starts() -> None:
    """It is dropped from the engine's queue at once."""
    engine: Engine[str] = Engine(ONE)
    engine.submit("a", 0, 2, 0.0)
    engine.submit("b", 0, 2, 0.0)
    engine.cancel("b", 0.01)
    assert list(drain(engine)) == ["a"]


def test_a_slowdown_counts_from_the_next_operation_on() -> None:
    """The step under way keeps its speed."""
    engine: Engine[str] = Engine(ONE)
    engine.submit("a", 0, 11, 0.0)
    engine.tell(0.075)
    engine.set_slow(2.0, 0.075)
    assert drain(engine)["a"] == pytest.approx(0.08 + 7 * 0.02)


def test_noise_multiplies_each_prefill_and_each_step() -> None:
    """One draw an operation."""
    draws = iter([2.0, 1.0, 3.0])
    engine: Engine[str] = Engine(ONE, lambda: next(draws))
    engine.submit("a", 0, 3, 0.0)
    assert drain(engine)["a"] == pytest.approx(0.1 + 0.01 + 0.03)


def test_a_request_may_be_slower_than_the_model() -> None:
    """`slow` stretches its whole service on one slot."""
    engine: Engine[str] = Engine(ONE)
    engine.submit("a", 0, 3, 0.0, slow=1.5)
    assert drain(engine)["a"] == pytest.approx(0.07 * 1.5)


def test_busy_time_is_the_time_of_operations() -> None:
    """Idle gaps are left out, cut operations counted as long as they ran."""
    engine: Engine[str] = Engine(ONE)
    engine.submit("a", 0, 2, 0.0)
    drain(engine)
    engine.submit("b", 0, 2, 5.0)
    engine.cancel("b", 5.01)
    drain(engine)
    assert engine.busy_seconds == pytest.approx(0.06 + 0.05)
