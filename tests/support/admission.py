"""Builders for tests of the admission core."""

from __future__ import annotations

from typing import Any

from punctual_admission.ledger import Ledger
from punctual_admission.margin import Margin
from punctual_admission.policy import Policy, policy_from_spec
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Refusal, Request, Ticket


class Certain(Margin):
    """A margin for a world whose predictions are exact: none, and nothing to learn."""

    def __init__(self) -> None:
        super().__init__(0.99)

    @property
    def factor(self) -> float:
        """Predictions are taken at their word."""
        return 1.0


def make_policy(**spec: Any) -> Policy:
    """A policy for model `m` with the given sections."""
    return policy_from_spec({"model": "m", **spec})


def exact_ledger(policy: Policy, *models: ServiceModel, **options: Any) -> Ledger:
    """A ledger that takes predictions at their word, with a pod for each model."""
    ledger = Ledger(policy, sojourns=Certain(), services=Certain(), **options)
    for index, model in enumerate(models):
        ledger.join_pod(f"pod-{index}", model, 0.0)
    return ledger


def ask(
    number: int, *, tokens: int = 1, at: float = 0.0, budget: float = 10.0, prompt: int = 0
) -> Request:
    """A request that arrives at `at` with `budget` seconds to its deadline."""
    return Request(f"r{number}", prompt, tokens, at, at + budget)


def admitted(answer: Ticket | Refusal) -> Ticket:
    """The ticket of an admission; fails on a refusal."""
    assert isinstance(answer, Ticket), answer
    return answer


def refused(answer: Ticket | Refusal) -> Refusal:
    """The refusal; fails on an admission."""
    assert isinstance(answer, Refusal), answer
    return answer
