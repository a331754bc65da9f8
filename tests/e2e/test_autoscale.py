"""The number of model pods follows the load, refused work included, on a cluster that runs pods.

Windows, autoscaler and pods are as shipped, but for the scale-down window, which is a minute, and
for the model servers, which take half a minute to start. `tests/cluster/test_autoscale_loop.py`
has more scenarios, on a shortened clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.course import Course
from e2e.load import Outcomes
from e2e.release import Release
from e2e.service import GATEWAY, POOL, Service
from testcluster.waiting import wait_until

STEP_MS = 44.0
"""Of two requests at a time; so 22 ms of a pod for each token."""
MEAN_TOKENS = 0.5 * 4 + 0.35 * 16 + 0.15 * 64
"""Of the requests that `punctual-lab load` makes."""
COST = 0.008 + (MEAN_TOKENS - 1) * STEP_MS / 2000
"""GPU-seconds of a request in the mean."""
POD_START = 30
CAUGHT_UP = 90
"""Seconds from a step, and the start of a pod, until hardly anything may be refused."""
WINDOW = 60
"""Seconds over which a gateway averages; before that it tells nothing."""
SCALING = {
    "targetName": "quickstart",
    "minimumReplicas": 1,
    "maximumReplicas": 10,
    "scaleDownStabilisationSeconds": 60,
}
DEADLINE = {"defaultMilliseconds": 8000}
STEADY, NEEDED = 1.85, 3
"""Pods of work, and how many of them that takes at 70 % each: not near a whole number."""
TURNED_AWAY = ("refused", "expired")
"""At once, or at its turn when it could not be answered in time any more."""
ADAPTER = "deployment/punctual-metrics-adapter"

pytestmark = pytest.mark.autoscale


@pytest.fixture
def adapter(release: Release) -> Iterator[None]:
    """The metrics adapter, switched on for the test."""
    release.install("--set", "metricsAdapter.enabled=true", "--set", "metricsAdapter.replicas=1")
    yield
    release.install()


@pytest.fixture
def course(service: Service, adapter: None) -> Iterator[Course]:
    """An autoscaled pool of pods that start slowly, and how many there are."""
    slow = [
        f"--sim-step-ms={STEP_MS:g},{STEP_MS:g}",
        f"--start-delay-seconds={POD_START}",
    ]
    patch_arguments(service, slow)
    service.change({"autoscaling": SCALING, "deadline": DEADLINE})
    found = Course(service.kubectl, POOL)
    yield found
    found.close()


def patch_arguments(service: Service, more: list[str]) -> None:
    """Give the model servers further arguments, and wait until all have them."""
    path = "/spec/template/spec/containers/0/args/-"
    operations = [{"op": "add", "path": path, "value": one} for one in more]
    service.kubectl("patch", POOL, "--type=json", f"--patch={json.dumps(operations)}")
    wait_renewed(service, 120)


def wait_renewed(service: Service, seconds: float) -> None:
    """Wait until a rolling update of the pool is over."""

    def renewed() -> bool:
        found = service.kubectl.json("get", POOL)
        status: dict[str, Any] = found["status"]
        counts = {status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas")}
        seen = status.get("observedGeneration") == found["metadata"]["generation"]
        return seen and counts == {found["spec"]["replicas"]}

    wait_until(renewed, "all pods of the pool are new", seconds=seconds, every=1)


def play(service: Service, pods_of_work: float, seconds: float) -> tuple[Outcomes, float]:
    """Play a load to its end; returns what became of it, and when it began (monotonic)."""
    load = service.load(seconds, pods_of_work / COST)
    begun = time.monotonic()
    return load.wait(), begun


def share_refused(outcomes: Outcomes, begin: float) -> float:
    """Share of the requests planned after `begin` seconds that were turned away."""
    outcome = [str(row["outcome"]) for row in outcomes.rows if row["planned_at"] >= begin]
    return sum(one in TURNED_AWAY for one in outcome) / max(len(outcome), 1)


def assert_nothing_lost(outcomes: Outcomes) -> None:
    """Each request was answered in time or turned away."""
    assert set(outcomes.counts) <= {"good", *TURNED_AWAY}, outcomes.describe("failed", "late")


def wait_count(course: Course, count: int, seconds: float) -> None:
    """Wait until the pool is told to have so many pods."""
    wait_until(
        lambda: bool(course.looks) and course.looks[-1].replicas == count,
        f"the pool has {count} pods",
        seconds=seconds,
        every=1,
    )


@pytest.mark.timeout(900)
def test_pool_follows_a_step_of_the_load_up_and_down(service: Service, course: Course) -> None:
    """From 0.6 to 4.8 pods of work: under 1 % is refused 90 s after a pod start; then to one."""
    calm, _ = play(service, 0.6, WINDOW + 20)
    busy, begun = play(service, 4.8, POD_START + CAUGHT_UP + 60)
    ended = time.monotonic()
    most = max(course.counts(begun, ended))
    wait_count(course, 1, 240)
    spans = range(0, POD_START + CAUGHT_UP + 60, 15)
    print(course.describe(begun), dict(busy.counts))
    print("refused from each 15 s on", [round(share_refused(busy, at), 3) for at in spans])
    assert_nothing_lost(calm)
    assert_nothing_lost(busy)
    assert share_refused(busy, POD_START + CAUGHT_UP) < 0.01
    assert 6 <= most <= 9


@pytest.mark.timeout(900)
def test_pool_keeps_its_size_while_gateway_model_and_adapter_are_replaced_or_gone(
    service: Service, release: Release, course: Course
) -> None:
    """New gateways and new models neither shrink nor double it; without adapter it is frozen."""
    grown, begun = play(service, STEADY, WINDOW + POD_START + 40)
    load = service.load(WINDOW + 30 + 3 * POD_START + 60, STEADY / COST)
    replaced = time.monotonic()
    service.kubectl("rollout", "restart", GATEWAY)
    service.wait_rolled_out(GATEWAY)
    wait_until(lambda: time.monotonic() > replaced + WINDOW + 30, "a window has passed", seconds=99)
    service.kubectl("rollout", "restart", POOL)
    renewing = load.wait()
    wait_renewed(service, 5 * POD_START)
    renewed = time.monotonic()
    release.kubectl("scale", ADAPTER, "--replicas=0")
    down = time.monotonic()
    wait_until(lambda: time.monotonic() > down + 2 * WINDOW, "two windows have passed", seconds=150)
    frozen = course.counts(down, time.monotonic())
    release.kubectl("scale", ADAPTER, "--replicas=1")
    wait_count(course, 1, 240)
    print(course.describe(begun), dict(grown.counts), dict(renewing.counts))
    counts = course.counts(replaced, renewed)
    assert min(counts) >= NEEDED
    assert max(counts) <= NEEDED + 1
    assert course.most_pods(replaced, renewed) > NEEDED
    assert len(frozen) == 1
    assert_nothing_lost(grown)
    assert_nothing_lost(renewing)
    assert share_refused(renewing, 0) < 0.01
