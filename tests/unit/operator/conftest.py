"""Policies and clusters for the operator's tests."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from punctual_operator.observed import BackendService, Endpoint, GatewayPod, Observed
from punctual_operator.policies import AdmissionPolicy, parse

MakePolicy = Callable[..., AdmissionPolicy]


def policy_object(name: str = "gpt2", **spec: Any) -> dict[str, Any]:
    """An AdmissionPolicy as the API server returns it."""
    base: dict[str, Any] = {"model": "gpt2", "backend": {"service": "gpt2-pods"}}
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": "0b7f2d8e-7a44-4b8e-8a57-5d3c2a6f9e10",
            "generation": 3,
            "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": copy.deepcopy(base | spec),
    }


@pytest.fixture
def make_policy() -> MakePolicy:
    """Make a policy from fields of its spec."""

    def make(name: str = "gpt2", *, status: dict[str, Any] | None = None, **spec: Any) -> Any:
        return parse(policy_object(name, **spec) | ({"status": status} if status else {}))

    return make


@pytest.fixture
def healthy() -> Observed:
    """A cluster where all is well, up to what the gateways report."""
    return Observed(
        service=BackendService(headless=True, selector="app=gpt2"),
        endpoints=(Endpoint("10.0.0.1", ready=True), Endpoint("10.0.0.2", ready=True)),
        backend_ports=frozenset({8000}),
        children={("Deployment", "gpt2-gateway"): deployment(available=1)},
        pods=(GatewayPod("gpt2-gateway-a", "10.0.1.1", ready=True),),
    )


@pytest.fixture
def deployments() -> Callable[..., dict[tuple[str, str], Any]]:
    """Make the children of a policy whose Deployment has this status."""
    return lambda **status: {("Deployment", "gpt2-gateway"): deployment(**status)}


def deployment(wanted: int = 1, available: int = 0, **status: Any) -> dict[str, Any]:
    """The gateway's Deployment with a status."""
    return {
        "kind": "Deployment",
        "metadata": {"name": "gpt2-gateway"},
        "spec": {"replicas": wanted},
        "status": {"availableReplicas": available, "readyReplicas": available, **status},
    }
