"""A gateway's view of the pods, from a real API server, with the rights that it gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio import client, config

from operatorstand.objects import endpoint_slice, service
from punctual_admission.policy import Backend
from punctual_gateway.endpoint_slices import EndpointSliceDiscovery
from punctual_operator.resources.access import GATEWAY_RULES
from testcluster.audit import AuditLog
from testcluster.cluster import Cluster
from testcluster.control_plane import ControlPlane
from testcluster.fixtures import account_manifests
from testcluster.kubectl import Kubectl
from testcluster.waiting import wait_until
from testcluster.wire import Wire

Follow = Callable[..., AsyncIterator[frozenset[str]]]

# a server that died or fell silent answers no TLS farewell: asyncio leaves such a socket to the
# garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

POD = frozenset({"http://10.9.9.1:8000"})


def connector(kubeconfig: Path) -> Callable[[], Awaitable[Any]]:
    async def connect() -> Any:
        settings = client.Configuration()
        await config.load_kube_config(
            config_file=str(kubeconfig), client_configuration=settings, persist_config=False
        )
        return client.ApiClient(configuration=settings)

    return connect


@pytest.fixture
async def follow(own_cluster: Cluster, own_namespace: str) -> AsyncIterator[Follow]:
    """Follow the Service `pods` with a gateway's rights: `follow(server=URL, inactivity=3)`."""
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl.apply(account_manifests(own_namespace, "gateway", GATEWAY_RULES, None))
    started: list[Any] = []

    def start(*, server: str = "", inactivity: float = 75.0) -> AsyncIterator[frozenset[str]]:
        kubeconfig = own_cluster.account_kubeconfig(own_namespace, "gateway", server=server)
        backend = Backend(service="pods", port=8000)
        discovery = EndpointSliceDiscovery(
            own_namespace, lambda: backend, connector(kubeconfig), inactivity
        )
        started.append(discovery.watch())
        return started[-1]  # type: ignore[no-any-return]

    yield start
    for watching in started:
        await watching.aclose()


async def take(sets: AsyncIterator[frozenset[str]], seconds: float = 60) -> frozenset[str]:
    async with asyncio.timeout(seconds):
        return await anext(sets)


async def watching(audit: AuditLog, namespace: str, position: int) -> None:
    """Wait until the gateway's watch has begun."""
    user = f"system:serviceaccount:{namespace}:gateway"

    def begun() -> bool:
        return any(one.verb == "watch" for one in audit.since(position, user=user))

    await asyncio.to_thread(wait_until, begun, "the watch has begun")


async def in_thread(call: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.to_thread(call, *arguments)


async def test_pods_come_and_go(own_cluster: Cluster, own_namespace: str, follow: Follow) -> None:
    kubectl: Kubectl = own_cluster.kubectl(own_namespace)
    kubectl.apply(service())
    sets = follow()
    assert await take(sets) == frozenset()
    await in_thread(kubectl.apply, endpoint_slice())
    assert await take(sets) == POD
    await in_thread(kubectl, "delete", "endpointslice", "pods-by-hand")
    assert await take(sets) == frozenset()


async def test_cut_watch_is_continued(
    own_cluster: Cluster, own_namespace: str, follow: Follow, wire: Wire, audit: AuditLog
) -> None:
    position = audit.position()
    kubectl = own_cluster.kubectl(own_namespace)
    sets = follow(server=wire.server)
    assert await take(sets) == frozenset()
    following = asyncio.ensure_future(take(sets))
    await watching(audit, own_namespace, position)
    assert wire.cut() > 0
    await in_thread(kubectl.apply, endpoint_slice())
    assert await following == POD


async def test_silent_watch_is_opened_anew(
    own_cluster: Cluster, own_namespace: str, follow: Follow, wire: Wire, audit: AuditLog
) -> None:
    position = audit.position()
    kubectl = own_cluster.kubectl(own_namespace)
    sets = follow(server=wire.server, inactivity=2.0)
    assert await take(sets) == frozenset()
    following = asyncio.ensure_future(take(sets))
    await watching(audit, own_namespace, position)
    assert wire.freeze() > 0
    await in_thread(kubectl.apply, endpoint_slice())
    wire.restore()
    assert await following == POD


@pytest.mark.parametrize("kill", [False, True])
async def test_restart_of_the_api_server_loses_no_pod(
    own_cluster: Cluster,
    own_namespace: str,
    follow: Follow,
    control_plane: ControlPlane,
    kill: bool,
) -> None:
    kubectl = own_cluster.kubectl(own_namespace)
    kubectl.apply(endpoint_slice())
    sets = follow()
    assert await take(sets) == POD
    following = asyncio.ensure_future(take(sets))
    await in_thread(lambda: control_plane.restart_api_server(kill=kill))
    assert not following.done()
    await in_thread(kubectl, "delete", "endpointslice", "pods-by-hand")
    assert await following == frozenset()
