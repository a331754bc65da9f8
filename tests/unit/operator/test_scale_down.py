"""How long the need must have been lower, derived from the time that pods take to start."""

from __future__ import annotations

from typing import Any

import pytest

from punctual_operator.api import ApiError
from punctual_operator.observed import Failure, Observed
from punctual_operator.pod_start import PodStarts, read_start_seconds
from punctual_operator.reconcile import reconcile
from punctual_operator.resources.deployment import GatewayImage
from punctual_operator.scale_down import choose_window

IMAGE = GatewayImage("gateway:1")
SCALER = ("HorizontalPodAutoscaler", "gpt2-pool")


@pytest.mark.parametrize(
    ("start", "present", "window"),
    [
        (None, None, 300),
        (None, 900, 900),
        (5.0, None, 300),
        (60.0, None, 300),
        (61.0, None, 360),
        (180.0, 300, 900),
        (180.0, 1800, 1800),
        (60.0, 3600, 300),
        (3000.0, None, 3600),
    ],
)
def test_window_is_five_starts_within_bounds_and_stays_while_it_fits(
    start: float | None, present: int | None, window: int
) -> None:
    assert choose_window(start, present) == window


def pod(scheduled: int, ready: int | None, restarts: int = 0) -> dict[str, Any]:
    def condition(kind: str, second: int | None) -> dict[str, str]:
        when = f"2026-11-29T10:{(second or 0) // 60:02}:{(second or 0) % 60:02}Z"
        return {
            "type": kind,
            "status": "False" if second is None else "True",
            "lastTransitionTime": when,
        }

    return {
        "status": {
            "conditions": [condition("PodScheduled", scheduled), condition("Ready", ready)],
            "containerStatuses": [{"restartCount": restarts}],
        }
    }


def test_start_is_the_median_from_scheduled_to_ready() -> None:
    pods = [pod(0, 40), pod(10, 70), pod(0, 600)]
    assert read_start_seconds(pods) == 60.0


def test_pods_that_are_not_ready_or_restarted_tell_nothing() -> None:
    broken = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    wrong = pod(0, 5)
    wrong["status"]["conditions"][0]["lastTransitionTime"] = "yesterday"
    assert read_start_seconds([pod(0, None), pod(0, 900, restarts=2), broken, {}, wrong]) is None
    assert read_start_seconds([pod(30, 10)]) == 0.0


class Pods:
    """Answers lists of pods, or fails."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] | None = []
        self.asked: list[tuple[str, str]] = []
        self.now = 0.0

    async def read_all(self, kind: Any, namespace: str, limit: int) -> list[dict[str, Any]]:
        self.asked.append((namespace, kind.labels))
        if self.pods is None:
            raise ApiError(503, "no")
        return self.pods[:limit]

    def starts(self) -> PodStarts:
        return PodStarts(self, lambda: self.now)  # type: ignore[arg-type]  # the part that is used


async def test_pods_are_listed_every_minute_until_one_tells_and_every_ten_from_then_on() -> None:
    api = Pods()
    starts = api.starts()
    assert await starts.get("ns", "app=a") is None
    api.pods = [pod(0, 45)]
    assert await starts.get("ns", "app=a") is None
    api.now = 61.0
    assert await starts.get("ns", "app=a") == 45.0
    api.now = 600.0
    assert await starts.get("ns", "app=a") == 45.0
    assert api.asked == [("ns", "app=a")] * 2


async def test_start_that_was_known_stays_when_pods_are_gone_or_cannot_be_listed() -> None:
    api = Pods()
    starts = api.starts()
    api.pods = [pod(0, 45)]
    await starts.get("ns", "app=a")
    unknown: tuple[list[dict[str, Any]] | None, ...] = ([], None)
    for pods in unknown:
        api.pods, api.now = pods, api.now + 700.0
        assert await starts.get("ns", "app=a") == 45.0
    assert len(api.asked) == 3


async def test_service_without_a_selector_has_no_pods_to_ask() -> None:
    api = Pods()
    assert await api.starts().get("ns", "") is None
    assert not api.asked


def scaler(make_policy: Any, observed: Observed, **autoscaling: Any) -> dict[str, Any]:
    policy = make_policy(autoscaling={"targetName": "gpt2"} | autoscaling)
    desired = reconcile(policy, observed, IMAGE)
    (found,) = [one for one in desired.manifests if one["kind"] == SCALER[0]]
    behaviour: dict[str, Any] = found["spec"]["behavior"]
    return behaviour


def test_autoscaler_has_the_window_that_the_start_of_its_pods_asks_for(make_policy: Any) -> None:
    assert scaler(make_policy, Observed()) == {"scaleDown": {"stabilizationWindowSeconds": 300}}
    slow = Observed(pod_start_seconds=200.0)
    assert scaler(make_policy, slow)["scaleDown"]["stabilizationWindowSeconds"] == 1020
    present = {"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 1080}}}}
    kept = Observed(pod_start_seconds=200.0, children={SCALER: present})
    assert scaler(make_policy, kept)["scaleDown"]["stabilizationWindowSeconds"] == 1080


def test_policys_own_window_and_tolerance_are_taken_as_they_are(make_policy: Any) -> None:
    slow = Observed(pod_start_seconds=200.0)
    found = scaler(make_policy, slow, scaleDownStabilisationSeconds=0, tolerancePercent=5)
    assert found == {
        "scaleDown": {"stabilizationWindowSeconds": 0, "tolerance": "50m"},
        "scaleUp": {"tolerance": "50m"},
    }


def condition(make_policy: Any, observed: Observed, kind: str, **autoscaling: Any) -> Any:
    policy = make_policy(autoscaling={"targetName": "gpt2"} | autoscaling)
    findings = reconcile(policy, observed, IMAGE).findings
    return next(one for one in findings if one.type == kind)


def test_window_shorter_than_a_start_is_said_in_the_condition(make_policy: Any) -> None:
    active = {"type": "ScalingActive", "status": "True"}
    observed = Observed(
        pod_start_seconds=200.0, children={SCALER: {"status": {"conditions": [active]}}}
    )
    short = condition(make_policy, observed, "AutoscalingActive", scaleDownStabilisationSeconds=120)
    assert "`scaleDownStabilisationSeconds` 120 is shorter than the time" in short.message
    long = condition(make_policy, observed, "AutoscalingActive", scaleDownStabilisationSeconds=240)
    assert "shorter" not in long.message


def test_autoscaler_that_the_server_refuses_is_no_fault_of_the_gateway(make_policy: Any) -> None:
    """As an older one does with a tolerance, or with no pods at all."""
    observed = Observed(failures={SCALER: Failure(400, "unknown field")})
    refused = condition(make_policy, observed, "AutoscalingActive", tolerancePercent=5)
    assert (refused.reason, "unknown field" in refused.message) == ("ApplyFailed", True)
    assert condition(make_policy, observed, "GatewayAvailable").reason == "Creating"
