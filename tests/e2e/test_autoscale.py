"""The number of model pods follows the load, refused work included, on a cluster that runs pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.load import Outcomes
from e2e.release import Release
from e2e.service import POLICY, POOL, POOL_PODS, Service
from testcluster.waiting import wait_until

WINDOW = 60
"""Seconds over which a gateway averages; before that it tells nothing."""
CAUGHT_UP = 120
"""Seconds from a step until hardly anything may be refused: 90, and the start of a pod here."""
SECONDS = CAUGHT_UP + 40
RATE = 12
"""Requests per second: about 2.3 pods of work, so four pods at 70 %."""
SCALING = {
    "targetName": "quickstart",
    "minimumReplicas": 1,
    "maximumReplicas": 6,
    "scaleDownStabilisationSeconds": 60,
}


@pytest.fixture
def adapter(release: Release) -> Iterator[None]:
    """The metrics adapter, switched on for the test."""
    release.install("--set", "metricsAdapter.enabled=true", "--set", "metricsAdapter.replicas=1")
    yield
    release.install()


def wait_active(service: Service) -> None:
    service.kubectl(
        "wait", POLICY, "--for=condition=AutoscalingActive", "--timeout=58s",
    )  # fmt: skip


def share_refused(outcomes: Outcomes, begin: float) -> float:
    """Share of the requests planned after `begin` seconds that were refused."""
    rows = [row for row in outcomes.rows if row["planned_at"] >= begin]
    refused = [row for row in rows if row["outcome"] == "refused"]
    return len(refused) / len(rows)


@pytest.mark.autoscale
@pytest.mark.timeout(720)
def test_pool_follows_a_step_of_the_load_up_and_down(service: Service, adapter: None) -> None:
    """From nothing to several pods of work: under 1 % is refused soon, and the pods go again."""
    service.change({"autoscaling": SCALING, "deadline": {"defaultMilliseconds": 4000}})
    # the first window of the gateway, and a look of the autoscaler
    wait_until(lambda: service.ask("/signals")["signals"], "load is known", seconds=2 * WINDOW)
    wait_active(service)
    load = service.load(SECONDS, RATE)
    outcomes = load.wait()
    pods = len(service.pods(POOL_PODS))
    print(f"{pods} pods, {dict(outcomes.counts)}")
    print(
        "refused by 15 s", [round(share_refused(outcomes, at), 3) for at in range(0, SECONDS, 15)]
    )
    assert 3 <= pods <= 6
    assert set(outcomes.counts) <= {"good", "refused"}, outcomes.describe("failed", "late")
    assert share_refused(outcomes, CAUGHT_UP) < 0.01

    def back() -> bool:
        return int(service.kubectl.json("get", POOL)["spec"]["replicas"]) == 1

    wait_until(back, "the pool is as small as it may be", seconds=240, every=2)
