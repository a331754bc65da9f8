"""The service model, the speed ratio and the margin."""

from __future__ import annotations

import pytest

from punctual_admission.margin import MAXIMUM, PRIOR_FACTOR, Margin
from punctual_admission.service_time import RATIO_BOUNDS, ServiceModel, SpeedRatio

MODEL = ServiceModel((0.01, 0.012, 0.016), prefill_base=0.005, prefill_per_token=0.001)


def test_service_alone_is_prefill_plus_a_step_for_each_further_token() -> None:
    """The first token comes with the prefill."""
    assert MODEL.alone(20, 1) == pytest.approx(0.025)
    assert MODEL.alone(20, 11) == pytest.approx(0.125)
    assert MODEL.crowded(20, 11) == pytest.approx(0.185)


def test_cost_counts_a_share_of_the_full_batch() -> None:
    """GPU-seconds: ten steps of 16 ms shared by three."""
    assert MODEL.cost(20, 11) == pytest.approx(0.025 + 10 * 0.016 / 3)


def test_a_batch_beyond_the_slots_takes_the_last_step_time() -> None:
    """T(B) is clamped to the measured sizes."""
    assert (MODEL.step(0), MODEL.step(2), MODEL.step(9)) == (0.01, 0.012, 0.016)


def test_scaling_multiplies_every_time() -> None:
    """A pod at twice the model's times."""
    slow = MODEL.scaled(2.0)
    assert slow.alone(20, 11) == pytest.approx(2 * MODEL.alone(20, 11))
    assert slow.slots == 3


@pytest.mark.parametrize(
    ("steps", "base", "token", "message"),
    [
        ((), 0.0, 0.0, "at least one entry"),
        ((0.0,), 0.0, 0.0, "must be positive"),
        ((0.02, 0.01), 0.0, 0.0, "must not decrease"),
        ((0.01,), -1.0, 0.0, "must not be negative"),
        ((0.01,), 0.0, -1.0, "must not be negative"),
    ],
)
def test_a_model_that_cannot_be_is_refused(
    steps: tuple[float, ...], base: float, token: float, message: str
) -> None:
    """Empty, non-positive, decreasing or negative times name the value."""
    with pytest.raises(ValueError, match=message):
        ServiceModel(steps, base, token)


def test_the_ratio_moves_a_fifth_of_the_way() -> None:
    """EWMA weight 0.2."""
    speed = SpeedRatio()
    speed.observe(2.0, 1.0)
    assert speed.value == pytest.approx(1.2)
    speed.observe(2.0, 1.0)
    assert speed.value == pytest.approx(1.36)


def test_a_fixed_speed_stays_at_one_and_still_learns() -> None:
    """Turning tracking on again continues from what was measured."""
    speed = SpeedRatio(1.5, tracking=False)
    assert speed.value == 1.0
    speed.observe(1.5, 1.0)
    speed.track(True)
    assert speed.value == pytest.approx(1.5)


def test_measurements_that_are_none_teach_nothing() -> None:
    """Zero and negative durations are faults of a clock, and outliers are clamped."""
    speed, margin = SpeedRatio(), Margin(0.99)
    for actual, predicted in ((0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)):
        speed.observe(actual, predicted)
        margin.observe(actual, predicted)
    assert speed.value == 1.0
    assert margin.records == 0
    speed.observe(1e9, 1.0)
    assert speed.value == pytest.approx(1 + 0.2 * (RATIO_BOUNDS[1] - 1))


def test_the_margin_starts_at_its_prior() -> None:
    """Nothing is known, so predictions are stretched by 8 %."""
    assert Margin(0.99).factor == PRIOR_FACTOR


def test_the_prior_stands_in_for_records_that_are_missing() -> None:
    """With half of the evidence the other half counts as 8 % late, and so does the margin."""
    margin = Margin(0.99)
    for _ in range(50):
        margin.observe(1.0, 1.0)
    assert margin.factor == PRIOR_FACTOR
    margin.set_confidence(0.5)
    assert margin.factor == 1.0


def test_exact_predictions_shrink_the_margin_to_one() -> None:
    """After a hundred exact records nothing is left of the prior."""
    margin = Margin(0.99)
    for _ in range(100):
        margin.observe(1.0, 1.0)
    assert margin.factor == 1.0
    assert margin.records == 100


def test_pessimistic_predictions_never_shrink_durations() -> None:
    """A margin below 1 would spend what a lucky past has saved."""
    margin = Margin(0.99)
    for _ in range(100):
        margin.observe(0.5, 1.0)
    assert margin.factor == 1.0


def test_the_margin_is_the_quantile_of_the_confidence() -> None:
    """Of 200 records 3 % came 20 % late: confidence 99 covers them, 90 does not."""
    margin = Margin(0.99)
    for number in range(200):
        margin.observe(1.2 if number % 33 == 0 else 1.0, 1.0)
    assert margin.factor == pytest.approx(1.2)
    margin.set_confidence(0.9)
    assert margin.factor == 1.0
    margin.set_confidence(0.9)
    assert margin.factor == 1.0


def test_a_hiccup_of_a_short_request_does_not_set_the_margin_of_long_ones() -> None:
    """Records weigh as many seconds as they lasted."""
    margin = Margin(0.99)
    for _ in range(99):
        margin.observe(2.0, 2.0)
    margin.observe(0.1, 0.03)
    assert margin.factor == 1.0


def test_the_margin_has_a_maximum() -> None:
    """What is worse than a factor of two is a change of speed."""
    margin = Margin(0.99)
    for _ in range(100):
        margin.observe(5.0, 1.0)
    assert margin.factor == MAXIMUM


def test_old_records_leave_the_margin() -> None:
    """A bad minute is forgotten after 256 good answers."""
    margin = Margin(0.99)
    for _ in range(100):
        margin.observe(1.5, 1.0)
    assert margin.factor == pytest.approx(1.5)
    for _ in range(256):
        margin.observe(1.0, 1.0)
    assert margin.factor == 1.0
    assert margin.records == 256
