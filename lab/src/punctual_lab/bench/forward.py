"""What a proxy adds to a request when nothing competes: at 1 and at 32 connections.

The upstream answers at once, so the time of a request is the client, the network and the proxy.
All programs are measured in turn, several rounds, so that a slow second of the machine touches
each alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from punctual_lab.bench.usage import read_usage
from punctual_lab.load.wire import build_request, send_closed_loop
from punctual_lab.measures import quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from punctual_lab.processes import ServerProcess

CONNECTIONS = (1, 32)
DIRECT = "direct"
BARE = "bare aiohttp proxy"
BODY = orjson.dumps({"model": "lab", "prompt": "one two three", "max_tokens": 1, "temperature": 0})


async def measure_forwarding(
    servers: Mapping[str, ServerProcess],
    *,
    rounds: int = 3,
    seconds: float = 1.5,
    on_step: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Return for each number of connections and each server latency, rate, and what it adds.

    `servers` must hold `direct`, the upstream itself. Raises ConnectionError if one answers
    something else than 200.
    """
    return {
        str(connections): add_differences(
            await _measure_all(servers, connections, rounds, seconds, on_step)
        )
        for connections in CONNECTIONS
    }


async def _measure_all(
    servers: Mapping[str, ServerProcess],
    connections: int,
    rounds: int,
    seconds: float,
    on_step: Callable[[], None],
) -> dict[str, dict[str, float]]:
    times: dict[str, list[float]] = {name: [] for name in servers}
    cpu = dict.fromkeys(servers, 0.0)
    for _ in range(rounds):
        for name, server in servers.items():
            before = read_usage(server.pid).cpu_seconds
            times[name] += await measure_once(server.url, connections, seconds)
            cpu[name] += read_usage(server.pid).cpu_seconds - before
            on_step()
    return {name: describe(samples, rounds * seconds, cpu[name]) for name, samples in times.items()}


async def measure_once(url: str, connections: int, seconds: float) -> list[float]:
    """Return the seconds of each request of one closed loop, after a short warm-up."""
    request = build_request(url, BODY)
    await send_closed_loop(url, request, connections=connections, seconds=0.2)
    answers = await send_closed_loop(url, request, connections=connections, seconds=seconds)
    strange = next((answer for answer in answers if answer.status != 200), None)
    if strange is not None:
        msg = f"{url} answered {strange.status}: {strange.body[:200]!r}; it must be 200"
        raise ConnectionError(msg)
    return [answer.seconds for answer in answers]


def describe(samples: list[float], seconds: float, cpu_seconds: float) -> dict[str, float]:
    """Return latency quantiles, the rate, and CPU microseconds a request."""
    ordered = sorted(samples)
    return {
        "p50_ms": round((quantile(ordered, 0.5) or 0.0) * 1e3, 3),
        "p99_ms": round((quantile(ordered, 0.99) or 0.0) * 1e3, 3),
        "requests_per_second": round(len(samples) / seconds, 1),
        "cpu_us_per_request": round(cpu_seconds / max(1, len(samples)) * 1e6, 1),
    }


def add_differences(results: dict[str, dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Add to each what it adds to the direct way, and that as a multiple of the bare proxy's."""
    direct, bare = results[DIRECT], results.get(BARE)
    detailed: dict[str, dict[str, Any]] = {}
    for name, row in results.items():
        added = {key: round(row[f"{key}_ms"] - direct[f"{key}_ms"], 3) for key in ("p50", "p99")}
        detailed[name] = {**row, "added_ms": added, "of_bare_proxy": None}
        if bare is not None and name != DIRECT:
            detailed[name]["of_bare_proxy"] = {
                key: share_of(value, bare[f"{key}_ms"] - direct[f"{key}_ms"])
                for key, value in added.items()
            }
    return detailed


def share_of(value: float, floor: float) -> float | None:
    """Return value / floor; None where noise left no floor to compare with."""
    return round(value / floor, 2) if floor > 0 else None
