"""Reading Services, EndpointSlices and pods."""

from __future__ import annotations

from typing import Any

import pytest

from punctual_operator.observed import Endpoint, read_pod, read_service, read_slices


def test_service_without_address_is_headless() -> None:
    found = read_service({"spec": {"clusterIP": "None", "selector": {"app": "gpt2", "tier": "a"}}})
    assert (found.headless, found.selector) == (True, "app=gpt2,tier=a")
    assert not read_service({"spec": {"clusterIP": "10.0.0.1"}}).headless
    assert not read_service({"spec": {"type": "ExternalName"}}).headless


def test_slices_of_a_service_are_one_list() -> None:
    slices: list[dict[str, Any]] = [
        {
            "ports": [{"port": 8000}, {"port": None}],
            "endpoints": [
                {"addresses": ["10.0.0.2"], "conditions": {"ready": False}},
                {"addresses": ["10.0.0.1"]},
            ],
        },
        {"ports": None, "endpoints": None},
    ]
    endpoints, ports = read_slices(slices)
    assert endpoints == (Endpoint("10.0.0.1", ready=True), Endpoint("10.0.0.2", ready=False))
    assert ports == {8000}


def pod(conditions: Any = (), containers: Any = (), **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", **metadata},
        "status": {
            "podIP": "10.0.0.1",
            "conditions": conditions,
            "containerStatuses": containers,
        },
    }


READY = [{"type": "Ready", "status": "True"}]


def test_stopping_pod_is_not_ready() -> None:
    assert read_pod(pod(READY)).ready
    assert not read_pod(pod(READY, deletionTimestamp="2026-01-01T00:00:00Z")).ready


def waiting(reason: str, why: str = "", **last: Any) -> Any:
    state = {"waiting": {"reason": reason, "message": why}}
    return [{"state": state, "lastState": {"terminated": last} if last else {}}]


@pytest.mark.parametrize(
    ("conditions", "containers", "trouble"),
    [
        ([], [], None),
        ([], waiting("ContainerCreating"), None),
        ([], waiting("ErrImagePull", "not found"), ("ErrImagePull", "not found")),
        (
            [],
            waiting("CrashLoopBackOff", "back-off 40s", exitCode=2, message="invalid policy"),
            ("CrashLoopBackOff", "exit status 2: invalid policy"),
        ),
        (
            [],
            [{"state": {"terminated": {"exitCode": 1}}}],
            ("CrashLoopBackOff", "exit status 1"),
        ),
        (
            [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
            [],
            ("Unschedulable", ""),
        ),
        ([], [{"state": {"running": {}}}], None),
    ],
)
def test_trouble_is_what_keeps_a_pod_from_running(
    conditions: Any, containers: Any, trouble: Any
) -> None:
    assert read_pod(pod(conditions, containers)).trouble == trouble
