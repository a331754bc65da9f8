"""The programs of the benchmark forward to the upstream, each as its own process."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import orjson
import pytest

from punctual_lab.bench import others
from punctual_lab.bench.forward import BODY, measure_forwarding
from punctual_lab.load.capacity import fetch_capacity
from punctual_lab.load.wire import build_request, send_burst
from punctual_lab.processes import Stack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Give a stack whose logs lie in the test's folder."""
    with Stack(tmp_path / "logs") as stack:
        yield stack


@pytest.mark.parametrize("name", ["bare aiohttp proxy", "nginx", "haproxy"])
async def test_a_program_forwards_or_says_how_to_get_it(
    stack: Stack, tmp_path: Path, name: str
) -> None:
    """An installed program passes the completion on; one that is not is reported as missing."""
    upstream = others.start_upstream(stack)
    running, missing = others.start_others(stack, upstream.url, tmp_path, [name])
    if name in missing:
        assert shutil.which(name) is None
        assert "apt-get install" in missing[name]
        return
    url = running[name].url
    (answer,) = await send_burst(url, [build_request(url, BODY)])
    assert answer.status == 200
    assert orjson.loads(answer.body[answer.body.index(b"{") : answer.body.rindex(b"}") + 1])[
        "usage"
    ] == {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}


async def test_forwarding_is_measured_against_the_direct_way(stack: Stack, tmp_path: Path) -> None:
    """Each server has latency, rate and CPU time at 1 and at 32 connections."""
    upstream = others.start_upstream(stack)
    bare = others.start_bare_proxy(stack, upstream.url, tmp_path)
    servers = {"direct": upstream, "bare aiohttp proxy": bare}
    results = await measure_forwarding(servers, rounds=1, seconds=0.2)
    assert set(results) == {"1", "32"}
    for rows in results.values():
        assert set(rows) == set(servers)
        assert all(row["requests_per_second"] > 0 for row in rows.values())


async def test_a_server_that_does_not_answer_200_cannot_be_measured(
    stack: Stack, tmp_path: Path
) -> None:
    """A broken comparison is an error, not a fast row."""
    upstream = others.start_upstream(stack)
    broken = others.start_bare_proxy(stack, f"{upstream.url}/nowhere", tmp_path)
    with pytest.raises(ConnectionError, match="it must be 200"):
        await measure_forwarding({"direct": broken}, rounds=1, seconds=0.1)


def test_the_upstream_publishes_a_capacity(stack: Stack) -> None:
    """The gateway can poll it like a model server."""
    upstream = others.start_upstream(stack)
    first, second = fetch_capacity(upstream.url), fetch_capacity(upstream.url)
    assert first["state"] == "ready"
    assert len(first["step_seconds"]) == first["slots"]
    assert second["seq"] > first["seq"]
