"""What is said of a policy while its replicas come, go and fall silent."""

from __future__ import annotations

import pytest

from punctual_operator.adapter.book import Book, Limits
from punctual_operator.adapter.series import SERIES, Signals

LOAD = SERIES["punctual_offered_load"]
WAIT = SERIES["punctual_queue_wait_seconds"]
SHARE = SERIES["punctual_rejection_share"]


def book(**replicas: float | None) -> Book:
    """A book whose replicas have just answered, None: within their first window."""
    made = Book(Limits())
    made.set_replicas(replicas, 0.0)
    tell(made, 0.0, **replicas)
    return made


def tell(made: Book, now: float, **replicas: float | None) -> None:
    for name, load in replicas.items():
        made.record(name, {} if load is None else {"offered_load": load}, now)
    made.note(LOAD, now)


def load(made: Book, now: float) -> float | None:
    value = made.read(LOAD, now)
    return None if value is None else value.value


def test_rates_of_replicas_are_added() -> None:
    assert load(book(a=1.0, b=2.5), 1.0) == 3.5


def test_without_replicas_nothing_is_known() -> None:
    assert load(Book(Limits()), 0.0) is None


def test_replica_in_its_first_window_is_unknown_and_not_idle() -> None:
    assert load(book(a=None), 1.0) is None


def test_idle_replica_is_zero() -> None:
    assert load(book(a=0.0), 1.0) == 0


def test_last_complete_value_stands_in_for_a_silent_replica() -> None:
    made = book(a=1.0, b=2.0)
    tell(made, 20.0, a=0.5)
    assert load(made, 21.0) == 3.0
    tell(made, 21.0, a=4.0)
    assert load(made, 21.0) == 4.0


def test_after_its_time_the_others_speak_for_a_silent_replica() -> None:
    made = book(a=1.0, b=2.0)
    tell(made, 130.0, a=1.5)
    assert load(made, 130.0) == 3.0


def test_all_silent_is_unknown_after_its_time() -> None:
    made = book(a=1.0)
    assert load(made, 100.0) == 1.0
    assert load(made, 121.0) is None


def test_age_is_that_of_the_oldest_answer() -> None:
    made = book(a=1.0, b=1.0)
    tell(made, 8.0, a=1.0)
    value = made.read(LOAD, 10.0)
    assert value is not None
    assert value.age == 10.0


def test_restarted_gateway_does_not_lower_the_load() -> None:
    made = book(old=2.0)
    made.set_replicas(["new"], 5.0)
    tell(made, 6.0, new=None)
    assert load(made, 30.0) == 2.0
    tell(made, 66.0, new=1.9)
    assert load(made, 66.0) == pytest.approx(1.9)


def test_replica_that_has_gone_fades_while_its_clients_come_to_others() -> None:
    made = book(a=1.0, b=1.0)
    made.set_replicas(["a"], 10.0)
    for moved in (0, 30, 45):
        now = 10.0 + moved
        tell(made, now, a=1.0 + moved / 60)
        assert load(made, now) == pytest.approx(2.0)
    made.set_replicas(["a"], 71.0)
    tell(made, 71.0, a=2.0)
    assert load(made, 71.0) == 2.0


def test_fading_and_standing_in_follow_the_window_that_the_gateways_tell() -> None:
    made = Book(Limits())
    made.set_replicas(["a", "b"], 0.0)
    for name in ("a", "b"):
        made.record(name, {"offered_load": 1.0, "window_seconds": 20.0}, 0.0)
    made.note(LOAD, 0.0)
    assert (made.window, made.hold) == (20.0, 40.0)
    made.set_replicas(["a"], 0.0)
    made.record("a", {"offered_load": 1.5, "window_seconds": 20.0}, 10.0)
    assert load(made, 10.0) == pytest.approx(2.0)
    made.record("a", {}, 21.0)
    assert made.window == 20.0
    made.set_replicas(["a"], 21.0)
    assert load(made, 40.0) == pytest.approx(2.0)
    assert load(made, 41.0) is None


def test_time_of_standing_in_can_be_given() -> None:
    assert Book(Limits(hold=5.0)).hold == 5.0


def test_replica_that_comes_back_counts_once() -> None:
    made = book(a=1.0, b=1.0)
    made.set_replicas(["a"], 5.0)
    made.set_replicas(["a", "b"], 6.0)
    tell(made, 6.0, a=1.0, b=1.0)
    assert load(made, 6.0) == 2.0


def test_how_many_replicas_are_silent_is_counted() -> None:
    made = book(a=1.0, b=1.0)
    made.set_replicas(["a", "b", "c"], 1.0)
    assert made.silent(1.0) == 1
    assert made.silent(16.0) == 3


def both(one: Signals, two: Signals) -> Book:
    made = Book(Limits())
    made.set_replicas(["a", "b"], 0.0)
    made.record("a", one, 0.0)
    made.record("b", two, 0.0)
    return made


def test_longest_wait_counts() -> None:
    value = both({"queue_wait_p95": 0.2}, {"queue_wait_p95": 0.7}).read(WAIT, 1.0)
    assert value is not None
    assert value.value == 0.7


def test_share_is_weighted_by_arrivals() -> None:
    made = both(
        {"rejection_share": 0.1, "arrivals_per_second": 30.0},
        {"rejection_share": 0.5, "arrivals_per_second": 10.0},
    )
    value = made.read(SHARE, 1.0)
    assert value is not None
    assert value.value == pytest.approx(0.2)


def test_share_without_arrivals_is_the_larger() -> None:
    value = both({"rejection_share": 0.0}, {"rejection_share": 0.0}).read(SHARE, 1.0)
    assert value is not None
    assert value.value == 0
