"""Every event of a service's life, while open-loop load runs: each request is accounted for.

Clients obey Retry-After, and the deadline leaves room for a busy machine.
"""

from __future__ import annotations

import pytest

from e2e.images import NEXT_TAG, image
from e2e.release import Release
from e2e.service import GATEWAY, GATEWAY_PODS, POOL, POOL_PODS, Service
from testcluster.waiting import wait_until

CLIENT = ("--deadline-ms=15000", "--retry=obey")
RATE = 2.0
SECONDS = 40.0


@pytest.mark.parametrize("stream", [(), ("--stream",)], ids=["whole", "streamed"])
def test_rolling_update_of_the_gateway_loses_nothing(
    stream: tuple[str, ...], service: Service
) -> None:
    """A new gateway image replaces two replicas while answers are being streamed through them."""
    service.wait_applied(service.change({"gateway": {"replicas": 2, "acceptSeconds": 5}}))
    before = {pod["metadata"]["name"] for pod in service.pods(GATEWAY_PODS)}
    load = service.load(SECONDS, RATE, *CLIENT, *stream)
    generation = service.change({"gateway": {"image": image("gateway", NEXT_TAG)}})
    service.wait_applied(generation)
    load.wait().assert_promises_kept()
    assert before.isdisjoint(pod["metadata"]["name"] for pod in service.pods(GATEWAY_PODS))


def test_changed_policy_reaches_the_gateway_without_a_restart(service: Service) -> None:
    (before,) = service.pods(GATEWAY_PODS)
    load = service.load(SECONDS, RATE, *CLIENT)
    generation = service.change({"deadline": {"defaultMilliseconds": 4321}})
    service.wait_applied(generation)
    assert service.ask("/stats")["policy"]["default_deadline_ms"] == 4321
    load.wait().assert_promises_kept()
    (after,) = service.pods(GATEWAY_PODS)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


def test_scaling_the_pool_up_and_down_loses_nothing(service: Service) -> None:
    load = service.load(60, RATE, *CLIENT)
    service.scale(4)
    wait_until(lambda: service.ask("/stats")["pool"]["pods"] == 4, "all four pods are in use")
    service.scale(1)
    wait_until(lambda: service.ask("/stats")["pool"]["pods"] == 1, "one pod is in use", seconds=60)
    load.wait().assert_promises_kept()


def test_rolling_update_of_the_model_pods_loses_nothing(service: Service) -> None:
    service.scale(2)
    load = service.load(SECONDS, RATE, *CLIENT)
    service.kubectl("rollout", "restart", POOL)
    service.wait_rolled_out(POOL)
    load.wait().assert_promises_kept()


def test_killed_model_pod_costs_at_most_what_ran_on_it(service: Service) -> None:
    """Its queued work moves to the other pod; at most its slots' worth of requests is lost."""
    service.scale(2)
    load = service.load(SECONDS, RATE, *CLIENT)
    victim = service.pods(POOL_PODS)[0]["metadata"]["name"]
    service.kubectl("delete", "pod", victim, "--grace-period=0", "--force")
    service.wait_rolled_out(POOL)
    outcomes = load.wait()
    lost = outcomes.counts["failed"] + outcomes.counts["late"]
    slots = 2
    assert lost <= slots, outcomes.describe("failed", "late")
    assert set(outcomes.counts) <= {"good", "refused", "failed", "late"}, outcomes.describe()


def test_drained_node_loses_nothing(service: Service, release: Release) -> None:
    """Evictions go one gateway replica at a time, and each finishes what it admitted."""
    service.wait_applied(service.change({"gateway": {"replicas": 2}}))
    service.scale(2)
    node = service.pods(GATEWAY_PODS)[0]["spec"]["nodeName"]
    load = service.load_elsewhere(node, SECONDS, RATE, *CLIENT)
    try:
        service.drain(node)
        load.wait().assert_promises_kept()
    finally:
        service.kubectl("uncordon", node)


def test_evicted_lone_gateway_leaves_no_gap(service: Service) -> None:
    """The only replica answers until its successor does: no client finds a closed door."""
    (before,) = service.pods(GATEWAY_PODS)
    node = before["spec"]["nodeName"]
    load = service.load_elsewhere(node, SECONDS, RATE, *CLIENT)
    try:
        service.drain(node)
        load.wait().assert_promises_kept()
    finally:
        service.kubectl("uncordon", node)
    (after,) = service.pods(GATEWAY_PODS)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


def test_stopped_gateway_finishes_the_answers_that_it_streams(service: Service) -> None:
    """SIGTERM to one of two replicas: what it admitted arrives whole, the rest finds the other."""
    service.wait_applied(service.change({"gateway": {"replicas": 2}}))
    load = service.load(SECONDS, RATE, *CLIENT, "--stream")
    victim = service.pods(GATEWAY_PODS)[0]["metadata"]["name"]
    service.kubectl("delete", "pod", victim, "--wait=false")
    service.wait_rolled_out(GATEWAY)
    load.wait().assert_promises_kept()
