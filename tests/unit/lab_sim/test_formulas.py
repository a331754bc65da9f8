"""Closed forms against each other and against known values."""

from __future__ import annotations

import pytest

from punctual_lab.experiments import formulas


def test_mm1_is_pollaczek_khinchine_with_exponential_service() -> None:
    """E[S^2] = 2 E[S]^2."""
    assert formulas.mm1_wait(8.0, 0.1) == pytest.approx(
        formulas.pollaczek_khinchine_wait(8.0, 0.1, 0.02)
    )


def test_mm1_wait_at_load_0_8_is_four_services() -> None:
    """rho / (1 - rho)."""
    assert formulas.mm1_wait(8.0, 0.1) == pytest.approx(0.4)


def test_erlang_c_with_one_server_is_the_load() -> None:
    """With one server the share that waits is rho."""
    assert formulas.erlang_c(7.0, 0.1, 1) == pytest.approx(0.7)
    assert formulas.mmc_wait(7.0, 0.1, 1) == pytest.approx(formulas.mm1_wait(7.0, 0.1))


def test_erlang_c_of_a_table() -> None:
    """Two erlang on three servers: 4/9."""
    assert formulas.erlang_c(2.0, 1.0, 3) == pytest.approx(4 / 9)


def test_blocking_at_load_one_is_one_of_all_states() -> None:
    """K + 1 states are equally likely, also a little beside load one."""
    assert formulas.mm1k_blocking(1.0, 4) == pytest.approx(0.2)
    assert formulas.mm1k_blocking(1.0001, 4) == pytest.approx(0.2, abs=1e-3)


def test_a_long_bounded_queue_is_an_unbounded_one() -> None:
    """M/M/1/K comes to M/M/1 for large K."""
    assert formulas.mm1k_wait(8.0, 0.1, 400) == pytest.approx(formulas.mm1_wait(8.0, 0.1))


@pytest.mark.parametrize("rate", [0.0, 10.0, 12.0])
def test_a_queue_without_steady_state_is_refused(rate: float) -> None:
    """At and above load one an unlimited queue grows for ever."""
    with pytest.raises(ValueError, match="must be above 0 and below 1"):
        formulas.mm1_wait(rate, 0.1)
