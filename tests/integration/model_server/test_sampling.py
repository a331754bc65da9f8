"""Picking tokens from logits."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from punctual_model_server.engine.runner import Draw
from punctual_model_server.engine.sampling import pick

pytestmark = pytest.mark.torch


def draws(logits: torch.Tensor, temperature: float, top_p: float, count: int) -> Counter[int]:
    draw = Draw(temperature, top_p, 1)
    return Counter(pick(logits, draw) for _ in range(count))


def test_greedy_takes_the_most_likely() -> None:
    assert pick(torch.tensor([0.0, 3.0, 1.0]), Draw(0.0, 1.0, 0)) == 1


def test_tokens_come_as_often_as_their_probability() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.2])
    seen = draws(probabilities.log(), 1.0, 1.0, 4000)
    assert [seen[i] / 4000 for i in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.03)


def test_a_low_temperature_sharpens() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log()
    assert draws(logits, 0.5, 1.0, 2000)[0] / 2000 == pytest.approx(0.25 / 0.38, abs=0.04)


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    logits = torch.tensor([0.05, 0.5, 0.3, 0.15]).log()
    assert set(draws(logits, 1.0, 0.8, 500)) == {1, 2}
    assert set(draws(logits, 1.0, 0.81, 500)) == {1, 2, 3}


def test_a_tiny_top_p_keeps_the_most_likely_token() -> None:
    assert set(draws(torch.tensor([0.1, 0.2, 0.3]), 1.0, 1e-9, 50)) == {2}


def test_a_flat_distribution_reaches_beyond_the_head_of_the_vocabulary() -> None:
    seen = draws(torch.zeros(2000), 1.0, 0.9, 3000)
    assert len(seen) > 1000
    assert all(0 <= token < 2000 for token in seen)


def test_one_token_is_always_itself() -> None:
    assert pick(torch.tensor([1.0]), Draw(1.0, 0.5, 0)) == 0
