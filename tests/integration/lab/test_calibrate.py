"""Calibration from outside, against the simulated engine behind the real HTTP front."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from punctual_lab.cli import main
from punctual_lab.load.alone import measure_service_times, probe_speed
from punctual_lab.load.calibration import PREFILL_PROMPTS, calibrate
from punctual_lab.load.client import Target
from punctual_lab.processes import Stack

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from punctual_lab.processes import ServerProcess

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Serve = Callable[[Handler], Awaitable[str]]

SIMULATED = ("--engine=sim", "--sim-step-ms=2,3", "--sim-prefill-ms=4,0.01")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """Start a model server that sleeps its service model."""
    with Stack(tmp_path / "logs") as stack:
        yield stack.start_model_server(slots=2, extra=SIMULATED)


async def test_the_simulated_service_model_is_found(server: ServerProcess) -> None:
    """Nothing is measured faster than the engine sleeps, and steps grow with the batch."""
    found = await calibrate(
        Target(server.url, "lab", stream=True), batch_sizes=[1, 2], repeats=5, requests=4
    )
    # where a line through measurements lies at their mean, however uneven they are
    assert found.prefill.at(mean(PREFILL_PROMPTS)) > 0.004
    assert found.step_seconds[1] > 0.0015
    assert found.step_seconds[2] > 0.0025
    assert len(found.model_errors) == 4


async def test_service_times_grow_with_the_answer(server: ServerProcess) -> None:
    """No request is faster than its sleeps, and a longer answer has more of them."""
    target = Target(server.url, "lab")
    times = await measure_service_times(target, [4, 64], prompt_tokens=16, repeats=2)
    assert times[4] > 0.009
    assert times[64] > 0.12
    assert await probe_speed(target, prompt_tokens=16, repeats=1) > 0.03


def test_the_command_prints_and_writes_what_it_found(
    server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table has a row for each batch size up to the server's slots."""
    out = tmp_path / "calibration.json"
    code = main(["calibrate", server.url, "--repeats=1", "--requests=4", f"--json={out}"])
    assert code == 0
    text = capsys.readouterr().out
    assert "step T(2)" in text
    assert "error median" in text
    assert "step_seconds" in out.read_text()


async def test_a_server_that_refuses_cannot_be_calibrated(serve: Serve) -> None:
    """The error names the server and what it answered."""

    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.Response(status=503)

    target = Target(await serve(refuse), "lab", stream=True)
    with pytest.raises(ConnectionError, match="sent 0 tokens, status 503"):
        await calibrate(target, batch_sizes=[1])
    with pytest.raises(ConnectionError, match="did not answer a request of 4 tokens"):
        await measure_service_times(target, [4], prompt_tokens=1, repeats=1)


def test_nothing_at_the_url_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with 1 and says so."""
    assert main(["calibrate", "http://127.0.0.1:9"]) == 1
    assert "does not answer" in capsys.readouterr().err
