"""The shortened clock of the loop's tests, and the replay of what an autoscaler decided."""

from __future__ import annotations

from typing import Any

import pytest

from loopstand.clock import ACCELERATION, SYNC_SECONDS, accelerate, quick, usual
from loopstand.network import next_address, pod_address, reachable
from loopstand.record import Look, behaviour_of, replay, steps, without_flickers
from punctual_lab.simulate.hpa import Rate, RateKind

SPEC: dict[str, Any] = {
    "minReplicas": 1,
    "maxReplicas": 12,
    "metrics": [{"external": {"target": {"averageValue": "700m"}}}],
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 8}},
}


def look(at: float, present: int, value: float | None) -> Look:
    return Look(at, present, present, present, present, present, value, f"{at}")


def test_windows_and_periods_are_shortened_and_usual_rates_written_out() -> None:
    found = accelerate({"scaleDown": {"stabilizationWindowSeconds": 300}})
    assert found["scaleDown"] == {"stabilizationWindowSeconds": 40}
    assert [rate["periodSeconds"] for rate in found["scaleUp"]["policies"]] == [2, 2]
    assert {rate["type"] for rate in found["scaleUp"]["policies"]} == {"Pods", "Percent"}


def test_rates_that_a_policy_names_are_kept_and_no_period_is_below_a_second() -> None:
    rate = {"type": "Pods", "value": 1, "periodSeconds": 3}
    found = accelerate({"scaleUp": {"policies": [rate], "tolerance": "0.05"}})
    assert found["scaleUp"] == {"policies": [rate | {"periodSeconds": 1}], "tolerance": "0.05"}


def test_seconds_of_the_two_clocks_are_in_the_ratio_of_the_autoscalers_looks() -> None:
    assert quick(15) == SYNC_SECONDS
    assert usual(SYNC_SECONDS) == pytest.approx(15)
    assert quick(ACCELERATION) == pytest.approx(1)


def test_replay_scales_up_at_once_and_down_after_the_window() -> None:
    values = [(at, 0.5) for at in (0, 2)] + [(4, 4.8)] + [(at, 0.5) for at in range(6, 18, 2)]
    present = {0: 1, 2: 1, 4: 1}
    looks = [look(at, present.get(at, 5), value) for at, value in values]
    assert replay(looks, SPEC) == [(0, 1), (4, 5), (12, 1)]


def test_replay_keeps_the_count_while_the_value_is_not_known() -> None:
    looks = [look(at, 4, None) for at in range(0, 40, 2)]
    assert replay(looks, SPEC) == [(0, 4)]


def test_behaviour_is_read_from_the_autoscaler() -> None:
    rate = {"type": "Percent", "value": 50, "periodSeconds": 2}
    found = behaviour_of(
        {"scaleUp": {"stabilizationWindowSeconds": 3}, "scaleDown": {"policies": [rate]}}
    )
    assert found.up_window == 3
    assert found.tolerance == 0.1
    assert behaviour_of({"scaleUp": {"tolerance": "50m"}}).tolerance == pytest.approx(0.05)
    assert found.down_rates == (Rate(RateKind.PERCENT, 50, 2),)


def test_steps_are_the_first_of_each_run_of_equal_counts() -> None:
    assert steps([(0, 1), (1, 1), (2, 3), (3, 3), (4, 1)]) == [(0, 1), (2, 3), (4, 1)]


def test_pod_address_leads_back_to_the_process() -> None:
    address = next_address()
    assert address != next_address()
    assert reachable(f"http://{pod_address(address)}:8000") == f"http://{address}:8000"


def test_a_count_that_flickers_for_a_look_is_none() -> None:
    """One that stays for two looks is."""
    counts = [(0.0, 1), (5.0, 3), (6.0, 4), (7.0, 3), (9.0, 4), (13.0, 3)]
    assert without_flickers(counts, 4.0) == [(0.0, 1), (5.0, 3), (9.0, 4), (13.0, 3)]
