"""How true the simulated engine is to its model, and what the front costs.

Run `PYTHONPATH=tests python tests/benchmarks/model_server.py`: starts a simulated pod of four
slots, compares answers with the published service model, and prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import aiohttp

from support.model_server import ModelServer, model_server

SLOTS = 4
BODY = {"prompt": "hello", "ignore_eos": True, "temperature": 0, "stream": True}


def cpu_seconds(pid: int) -> float:
    """Return the processor time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> int:
    """Return the resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) >> 10


async def answer_seconds(client: aiohttp.ClientSession, url: str, tokens: int) -> float:
    """Return how long one streamed answer takes."""
    began = time.perf_counter()
    async with client.post(url + "/v1/completions", json=BODY | {"max_tokens": tokens}) as answer:
        await answer.read()
    return time.perf_counter() - began


async def measure(server: ModelServer) -> dict[str, float]:
    """Return the figures."""
    front, engine = server.process.pid, server.engine_pid
    steps, prefill = server.capacity()["step_seconds"], server.capacity()["prefill_seconds"]["base"]
    async with aiohttp.ClientSession() as client:
        alone = [await answer_seconds(client, server.url, 64) for _ in range(10)]
        before = cpu_seconds(front), cpu_seconds(engine)
        began = time.perf_counter()
        await asyncio.gather(*(answer_seconds(client, server.url, 500) for _ in range(SLOTS)))
        full = time.perf_counter() - began
        tokens = 500 * SLOTS
        spent = cpu_seconds(front) - before[0], cpu_seconds(engine) - before[1]
        polls = []
        for _ in range(300):
            began = time.perf_counter()
            async with client.get(server.url + "/v1/capacity") as document:
                await document.read()
            polls.append(time.perf_counter() - began)
    return {
        "alone_64_tokens_over_model": median(alone) / (prefill + 63 * steps[0]),
        "full_batch_over_model": full / (SLOTS * prefill + 499 * steps[SLOTS - 1]),
        "front_cpu_us_per_token": spent[0] / tokens * 1e6,
        "engine_cpu_us_per_token": spent[1] / tokens * 1e6,
        "capacity_poll_ms_p50": median(polls) * 1000,
        "capacity_poll_ms_p99": sorted(polls)[296] * 1000,
        "front_mib": memory_mib(front),
        "engine_mib": memory_mib(engine),
    }


def main() -> None:
    """Start the pod, measure and print."""
    options = ("--engine", "sim", "--slots", str(SLOTS), "--sim-prefill-ms", "8,0")
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        with model_server(Path(folder), *options) as server:
            server.wait_ready()
            started = time.monotonic() - began
            figures = asyncio.run(measure(server)) | {"start_seconds": started}
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
