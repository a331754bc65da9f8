"""A gateway in this process, on a free port, with its policy file."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from punctual_gateway import stats
from punctual_gateway.discovery import Discovery
from punctual_gateway.gateway import Gateway
from punctual_gateway.server import Server
from punctual_gateway.settings import Settings


def policy_object(generation: int = 1, **spec: Any) -> dict[str, Any]:
    """An AdmissionPolicy; the deadline is long unless the test says otherwise."""
    defaults = {
        "model": "lab",
        "deadline": {"defaultMilliseconds": 20_000, "maximumMilliseconds": 60_000},
    }
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": "tested", "namespace": "tests", "generation": generation},
        "spec": defaults | spec,
    }


@dataclass
class Stand:
    """The running gateway and a client for it."""

    url: str
    gateway: Gateway
    client: aiohttp.ClientSession
    policy_path: Path
    server: Server

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.url.rsplit(":", 1)[1])

    def complete(
        self,
        max_tokens: int = 4,
        *,
        stream: bool = False,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> Any:
        """Post a completion; use it as a context manager."""  # fmt: skip
        body = {"model": "lab", "prompt": [1, 2, 3], "max_tokens": max_tokens, "stream": stream}
        return self.client.post(
            f"{self.url}/v1/completions", json=body | fields, headers=headers or {}
        )

    async def stats(self) -> dict[str, Any]:
        """What `/stats` says."""
        async with self.client.get(f"{self.url}/stats") as response:
            shown: dict[str, Any] = await response.json()
            return shown

    def outcomes(self) -> dict[str, int]:
        """Ended requests by outcome, without those that never happened."""
        counted = stats.counters(self.gateway)
        return {name: by["total"] for name, by in counted.items() if by["total"]}

    def write_policy(self, content: dict[str, Any] | str) -> None:
        """Swap the policy file as a whole."""
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        draft = self.policy_path.with_suffix(".draft")
        draft.write_text(text)
        draft.replace(self.policy_path)

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for a state that comes by itself; the test's own time-out bounds it."""
        while not true():  # noqa: ASYNC110  # many states, and no event for each
            await asyncio.sleep(0.005)

    async def settle(self) -> None:
        """Wait until nobody waits or runs, and check that nothing is left of anybody."""
        scheduler = self.gateway.scheduler
        await self.until(lambda: scheduler.empty)
        ledger = scheduler.ledger
        assert not ledger.own_queue
        assert not ledger.running
        assert ledger.own_queued_work == 0
        assert all(not pod.residents for pod in ledger.all_pods)
        assert not scheduler.waiting


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    backends: list[str],
    discovery: Discovery | None = None,
    settings: dict[str, Any] | None = None,
    **spec: Any,
) -> AsyncIterator[Stand]:
    """Run a gateway until the block ends."""
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(policy_object(**spec)))
    defaults = Settings(
        path, tuple(backends), poll_interval=0.05, policy_interval=0.02, stuck_after=60.0
    )
    gateway = Gateway(replace(defaults, **(settings or {})), discovery)
    gateway.metrics.watch(lambda: stats.gauges(gateway))
    server = Server(gateway)
    runner = web.ServerRunner(server)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    await web.SockSite(runner, listener).start()
    gateway.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    connector = aiohttp.TCPConnector(limit=0)
    try:
        async with aiohttp.ClientSession(connector=connector) as client:
            stand = Stand(url, gateway, client, path, server)
            await stand.until(lambda: gateway.ready)
            yield stand
    finally:
        gateway.scheduler.hub.end()
        await runner.cleanup()
        await gateway.close()
