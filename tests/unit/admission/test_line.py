"""One busy slot is forecast by sums; the answers are those of the walk."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual_admission.forecast import Forecast, Lateness, Trial
from punctual_admission.line import Ahead
from punctual_admission.output_length import OutputLength
from punctual_admission.policy import Objective
from punctual_admission.pool import Pod
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Prediction, Request, Ticket
from punctual_admission.track import Item, item_of

NUMBERS = Prediction(0, 0, 1, 1, 0, 0, 1, 0, 0)


def ticket_of(
    number: int, prompt: int, output: int, deadline: float, cases: list[int] | None = None
) -> Ticket:
    """A ticket as far as the forecast reads it; `cases` are learned lengths."""
    request = Request(f"r{number}", prompt, output, 0.0, deadline)
    length = None if cases is None else OutputLength.of(sorted(cases))
    return Ticket(request, number, NUMBERS, 0.0, length)


lengths = st.none() | st.lists(st.sampled_from([1, 3, 10, 40]), min_size=1, max_size=4)
tickets = st.builds(
    ticket_of,
    st.just(0),
    st.integers(0, 50),
    st.sampled_from([1, 2, 4, 16, 64]),
    st.floats(0.1, 8.0),
    lengths,
)


def busy_pod(prompt: int, output: int, generated: int, cases: list[int] | None) -> Pod:
    """A pod with one slot that is taken."""
    pod = Pod("p", ServiceModel((0.01,), 0.005, 0.0002))
    running = ticket_of(1, prompt, output, 100.0, cases)
    running.generated, running.prefill_end = min(generated, output - 1), 0.02
    if running.generated:
        running.first_token = pod.step_started = 0.02
    pod.residents[1] = running
    return pod


def walked(pod: Pod, queue: list[Ticket]) -> Forecast:
    """A forecast that has to walk."""
    forecast = Forecast([pod], queue, 0.02)
    forecast._line = None
    return forecast


def times(item: Item) -> tuple[float, float, float]:
    """Start, first token and end."""
    return item.start, item.first_token, item.end


@settings(max_examples=300, deadline=None)
@given(
    st.lists(tickets, max_size=12), tickets, st.integers(0, 12), st.integers(0, 12),
    st.integers(0, 3), st.sampled_from(Objective), st.sampled_from([1.0, 1.1]), lengths,
)  # fmt: skip
def test_sums_say_what_the_walk_says(
    queue: list[Ticket], other: Ticket, place: int, without: int, generated: int,
    objective: Objective, margin: float, running: list[int] | None,
) -> None:  # fmt: skip
    """Same fit, same first late one and same times, at the tail and ahead, with one left out."""
    pod, test = busy_pod(7, 16, generated, running), Lateness(0.02, margin, objective)
    line, walk = Forecast([pod], queue, 0.02, Ahead.of(queue)), walked(pod, queue)

    def newcomer() -> Item:
        item = item_of(other)
        item.length = other.length
        return item

    place = min(place, len(queue))
    gone = without if without < len(queue) else None
    for ours, theirs in (
        (newcomer(), newcomer()),
        (newcomer(), newcomer()),
    ):
        assert line.append(ours, test).fits is walk.append(theirs, test).fits
        assert times(ours) == pytest.approx(times(theirs), abs=1e-9)
        mine = line.insert(place, ours, test, without=gone)
        true = walk.insert(place, theirs, test, without=gone)
        assert times(ours) == pytest.approx(times(theirs), abs=1e-9)
        assert (mine.fits, place_of(mine, gone, place)) == (true.fits, true.first_late)


def test_a_last_step_that_is_under_way_ends_when_it_is_due() -> None:
    """The slot falls free then, whoever else waits for the end of that step."""
    pod = busy_pod(7, 16, 15, None)
    pod.step_due = 0.03
    line, walk = Forecast([pod], [], 0.02), walked(pod, [])
    assert line.next_end() == walk.next_end() == 0.03


def place_of(trial: Trial, gone: int | None, place: int) -> int | None:
    """The walk's places do not count the one left out."""
    late = trial.first_late
    if late is None or gone is None:
        return late
    return late - (gone + (gone >= place) < late)
