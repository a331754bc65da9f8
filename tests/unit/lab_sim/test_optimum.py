"""The clairvoyant bound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual_admission.service_time import ServiceModel
from punctual_lab.experiments import reference
from punctual_lab.experiments.bound import try_all_orders
from punctual_lab.experiments.optimum import bound_on_time, most_on_time
from punctual_lab.experiments.tally import tally
from punctual_lab.simulate.world import Arrival, PodSpec, World


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, 3, 12])), min_size=1, max_size=6),
    st.integers(5, 30),
)
def test_the_bound_is_what_brute_force_finds(jobs: list[tuple[int, int]], budget: int) -> None:
    """All orders of all subsets, for equal budgets."""
    timed = [(at / 10, service / 10, (at + budget) / 10) for at, service in jobs]
    assert most_on_time(timed) == try_all_orders(timed)


def test_deadlines_out_of_order_are_refused() -> None:
    """The recurrence holds for deadlines in the order of arrival only."""
    with pytest.raises(ValueError, match="in the order of arrival"):
        most_on_time([(0.0, 1.0, 9.0), (1.0, 1.0, 5.0)])


def test_who_cannot_make_it_alone_does_not_count() -> None:
    """A request longer than its budget is left out."""
    model = ServiceModel((0.1,), 0.1)
    arrivals = [Arrival(0.0, 0, 100, 2.0), Arrival(0.1, 0, 10, 2.0)]
    assert bound_on_time(arrivals, model) == 1


@pytest.mark.parametrize("mode", ["Deadline", "Predictive", "Predictive + displacement"])
@pytest.mark.parametrize("load", [0.7, 2.0])
def test_no_mode_beats_the_bound(mode: str, load: float) -> None:
    """On one slot, and on two slots where the bound is not exact."""
    arrivals = reference.reference_arrivals(load, 60.0, 7)
    for model in (reference.reference_model(), ServiceModel((0.0084, 0.01), 0.009)):
        world = World(reference.reference_policy(reference.MODES[mode]), [PodSpec(model)])
        assert tally(world.run(arrivals))["good"] <= bound_on_time(arrivals, model)


@pytest.mark.parametrize(("load", "slow"), [(1.0, 1.0), (2.25, 1.0), (1.75, reference.SLOW)])
def test_displacement_has_almost_all_of_the_bound(load: float, slow: float) -> None:
    """99 % of what a schedule that knows the future has on time, and nothing late."""
    arrivals = reference.reference_arrivals(load, 300.0, 1, slow)
    model = reference.reference_model(slow)
    policy = reference.reference_policy(reference.MODES["Predictive + displacement"])
    counts = tally(World(policy, [PodSpec(model)]).run(arrivals))
    assert counts["late"] == 0
    assert counts["good"] >= 0.99 * bound_on_time(arrivals, model)
