"""What the operator exports."""

from __future__ import annotations

from typing import Any

from punctual_operator.metrics import CONDITION_LABELS, Metrics


def policy(*conditions: dict[str, Any]) -> dict[str, Any]:
    """A policy with these conditions in its status."""
    return {
        "metadata": {"namespace": "team", "name": "gpt2"},
        "status": {"conditions": list(conditions)},
    }


def sample(metrics: Metrics, **labels: str) -> float | None:
    """The value of one condition's series."""
    return metrics.registry.get_sample_value("punctual_operator_condition", labels)


def test_conditions_are_read_at_each_scrape() -> None:
    condition = {"type": "Ready", "status": "False", "reason": "NoPods", "message": "no pods"}
    policies: list[dict[str, Any]] = [policy(condition)]
    metrics = Metrics()
    metrics.watch_policies(lambda: policies)
    labels = dict(zip(CONDITION_LABELS, ("team", "gpt2", "Ready", "False", "NoPods"), strict=True))
    assert sample(metrics, **labels) == 1
    policies[0] = policy(condition | {"status": "True", "reason": "Serving"})
    assert sample(metrics, **labels) is None
    assert sample(metrics, **labels | {"status": "True", "reason": "Serving"}) == 1


def test_policy_without_a_status_has_no_condition() -> None:
    metrics = Metrics()
    metrics.watch_policies(lambda: [{"metadata": {"namespace": "team", "name": "gpt2"}}])
    assert metrics.registry.get_sample_value("punctual_operator_condition", {}) is None


def test_every_result_is_exported_before_it_happens() -> None:
    registry = Metrics().registry
    for result in ("ok", "error"):
        assert (
            registry.get_sample_value("punctual_operator_reconciles_total", {"result": result}) == 0
        )
