"""What a refusal costs: latency sustained and in a burst of 30, and how many a core can make.

The gateway refuses from a live situation: its one slot is busy, requests wait in its queue, and
tokens arrive while it decides. Beside it stands a bare aiohttp handler that answers a constant
503.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from punctual_lab.bench.usage import read_usage
from punctual_lab.load.client import Target, build_body
from punctual_lab.load.wire import WireConnection, build_request, send_burst, send_closed_loop
from punctual_lab.measures import quantiles
from punctual_lab.traces import TraceRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from punctual_lab.load.wire import WireAnswer
    from punctual_lab.processes import ServerProcess

BURST_SIZE = 30
QUEUED = 10
QUEUED_TOKENS = 900
SUSTAINED_GAP_SECONDS = 0.01


async def measure_refusals(
    gateway: ServerProcess,
    bare: ServerProcess,
    *,
    rounds: int = 3,
    seconds: float = 2.0,
    bursts: int = 20,
    on_step: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Return refusal latency sustained and in bursts, and refusals per CPU second, of both."""
    fillers = [asyncio.create_task(_fill(gateway.url)) for _ in range(QUEUED)]
    try:
        await _wait_until_refusing(gateway.url)
        results: dict[str, _Samples] = {"gateway": _Samples(), "bare": _Samples()}
        for _ in range(rounds):
            for name, server in (("gateway", gateway), ("bare", bare)):
                await results[name].measure(server, seconds, bursts)
                on_step()
    finally:
        for filler in fillers:
            filler.cancel()
        await asyncio.gather(*fillers, return_exceptions=True)
    return summarise(results["gateway"], results["bare"])


def build_refused_request(url: str) -> bytes:
    """Build a request whose deadline of 100 ms cannot be met while others wait."""
    request = TraceRequest(0, 0.0, 16, 64, 100)
    return build_request(url, build_body(request, Target(url, "lab")), headers=_deadline(100))


class _Samples:
    """What was measured of one server."""

    def __init__(self) -> None:
        self.sustained: list[float] = []
        self.burst: list[float] = []
        self.count = 0
        self.cpu_seconds = 0.0
        self.seconds = 0.0

    async def measure(self, server: ServerProcess, seconds: float, bursts: int) -> None:
        """Measure one round: a paced stream, bursts, then as many as 32 connections can send."""
        request = build_refused_request(server.url)
        self.sustained += await _send_paced(server.url, request, seconds)
        for _ in range(bursts):
            answers = await send_burst(server.url, [request] * BURST_SIZE)
            self.burst += _milliseconds(answers, server.url)
        before = read_usage(server.pid).cpu_seconds
        answers = await send_closed_loop(server.url, request, connections=32, seconds=seconds)
        self.cpu_seconds += read_usage(server.pid).cpu_seconds - before
        self.count += len(_milliseconds(answers, server.url))
        self.seconds += seconds


def summarise(gateway: _Samples, bare: _Samples) -> dict[str, Any]:
    """Return both side by side with ratios."""
    rates = {"gateway": _rates(gateway), "bare": _rates(bare)}
    per_core = [rates[name]["per_cpu_second"] for name in ("gateway", "bare")]
    return {
        "sustained": _compare(gateway.sustained, bare.sustained),
        f"burst_of_{BURST_SIZE}": _compare(gateway.burst, bare.burst),
        "rate": {**rates, "share_of_bare": round(per_core[0] / per_core[1], 3)},
    }


def _compare(gateway: list[float], bare: list[float]) -> dict[str, Any]:
    ours, theirs = quantiles(gateway), quantiles(bare)
    ratio = {
        key: round(value / floor, 2)
        for key in ours
        if (value := ours[key]) is not None and (floor := theirs[key])
    }
    return {"gateway_ms": ours, "bare_ms": theirs, "ratio": ratio}


def _rates(samples: _Samples) -> dict[str, float]:
    return {
        "per_second": round(samples.count / samples.seconds, 1),
        "per_cpu_second": round(samples.count / max(samples.cpu_seconds, 1e-3), 1),
    }


async def _send_paced(url: str, request: bytes, seconds: float) -> list[float]:
    """Send one refused request after another with a gap, on one connection; milliseconds each."""
    link = await WireConnection.open(url)
    answers = []
    try:
        for _ in range(int(seconds / SUSTAINED_GAP_SECONDS)):
            answers.append(await link.exchange(request))
            await asyncio.sleep(SUSTAINED_GAP_SECONDS)
    finally:
        link.close()
    return _milliseconds(answers, url)


async def _fill(url: str) -> None:
    """Keep one long request in the gateway, again and again."""
    body = build_body(TraceRequest(0, 0.0, 16, QUEUED_TOKENS, None), Target(url, "lab"))
    request = build_request(url, body, headers=_deadline(600_000))
    while True:
        link = await WireConnection.open(url)
        try:
            await link.exchange(request)
        finally:
            link.close()


async def _wait_until_refusing(url: str, attempts: int = 200) -> None:
    request = build_refused_request(url)
    for _ in range(attempts):
        answers = await send_burst(url, [request])
        if answers[0].status == 503:
            return
        await asyncio.sleep(0.05)
    msg = f"{url} answered {answers[0].status}: with its queue full it must refuse (503)"
    raise ConnectionError(msg)


def _milliseconds(answers: list[WireAnswer], url: str) -> list[float]:
    strange = next((answer for answer in answers if answer.status != 503), None)
    if strange is not None:
        msg = f"{url} answered {strange.status}: {strange.body[:200]!r}; it must be 503"
        raise ConnectionError(msg)
    return [answer.seconds * 1e3 for answer in answers]


def _deadline(milliseconds: int) -> dict[str, str]:
    return {"X-Deadline-Ms": str(milliseconds)}
