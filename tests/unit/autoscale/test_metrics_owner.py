"""What a policy says where somebody else answers for external metrics."""

from __future__ import annotations

import pytest

from punctual_operator.diagnosis.autoscaling import diagnose_autoscaling, lacks_metrics
from punctual_operator.observed import Observed
from punctual_operator.policies import AdmissionPolicy, parse

POLICY = parse(
    {
        "metadata": {"name": "gpt2", "namespace": "shop", "uid": "1"},
        "spec": {"model": "gpt2", "autoscaling": {"targetName": "gpt2"}},
    }
)


def observed(owner: str | None, reason: str = "FailedGetExternalMetric") -> Observed:
    status = "True" if reason == "ValidMetricFound" else "False"
    condition = {"type": "ScalingActive", "status": status, "reason": reason, "message": "no"}
    key = ("HorizontalPodAutoscaler", "gpt2-pool")
    children = {key: {"status": {"conditions": [condition]}}}
    return Observed(children=children, metrics_owner=owner)


def reason(policy: AdmissionPolicy, seen: Observed) -> str:
    return diagnose_autoscaling(policy, seen).reason


@pytest.mark.parametrize("owner", [None, "", "punctual-system/punctual-metrics-adapter"])
def test_metric_that_our_own_adapter_lacks_is_unavailable(owner: str | None) -> None:
    assert reason(POLICY, observed(owner)) == "MetricUnavailable"


def test_owner_that_is_somebody_else_is_named() -> None:
    found = diagnose_autoscaling(POLICY, observed("keda/keda-operator-metrics-apiserver"))
    assert found.reason == "MetricsApiTaken"
    assert "'keda/keda-operator-metrics-apiserver'" in found.message


def test_owner_that_serves_our_metrics_is_fine() -> None:
    seen = observed("monitoring/prometheus-adapter", "ValidMetricFound")
    assert reason(POLICY, seen) == "Active"
    assert not lacks_metrics(POLICY, seen)


def test_owner_is_looked_up_only_where_metrics_are_lacking() -> None:
    assert lacks_metrics(POLICY, observed(None))
    assert not lacks_metrics(POLICY, observed(None, "ScalingDisabled"))
    assert not lacks_metrics(POLICY, Observed())
