"""The policy file changes while requests run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import yaml

from gateway_stand.stand import policy_object

if TYPE_CHECKING:
    from pathlib import Path

    from gateway_stand.stand import Stand
    from integration.gateway.conftest import StartGateway, StartPod


async def ask(stand: Stand) -> tuple[int, str]:
    """Status and effective deadline of one request."""
    async with stand.complete(3) as response:
        await response.read()
        return response.status, response.headers["X-Punctual-Deadline-Ms"]


async def test_deadline_changed_under_load_loses_no_request(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod(slots=2, step=0.002), mode="Unlimited")
    seen: list[tuple[int, str]] = []
    changed = False

    async def client() -> None:
        while not (changed and seen and seen[-1][1] == "9000"):
            seen.append(await ask(stand))

    clients = [asyncio.create_task(client()) for _ in range(8)]
    await stand.until(lambda: len(seen) > 20)
    deadline = {"defaultMilliseconds": 9000, "maximumMilliseconds": 60_000}
    stand.write_policy(policy_object(2, mode="Unlimited", deadline=deadline))
    changed = True
    await asyncio.gather(*clients)
    assert {status for status, _ in seen} == {200}
    shown = (await stand.stats())["policy"]
    assert (shown["generation"], shown["default_deadline_ms"]) == (2, 9000)
    assert stand.outcomes() == {"good": len(seen)}
    await stand.settle()


async def test_invalid_policy_keeps_the_old_one_and_says_so(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    stand = await start_gateway(await start_pod())
    stand.write_policy(policy_object(2, mode="Sometimes"))
    await stand.until(lambda: bool(stand.gateway.policy_file.problems))
    shown = (await stand.stats())["policy"]
    assert shown["generation"] == 1
    assert "spec.mode must be one of" in shown["problems"][0]
    assert "'Sometimes'" in shown["problems"][0]
    assert (await ask(stand))[0] == 200
    async with stand.client.get(f"{stand.url}/metrics") as response:
        text = await response.text()
    assert "punctual_policy_invalid 1.0" in text
    assert "punctual_policy_reload_failures_total 1.0" in text
    stand.write_policy(policy_object(3))
    await stand.until(lambda: not stand.gateway.policy_file.problems)
    assert (await stand.stats())["policy"]["generation"] == 3


async def test_policy_behind_links_is_followed_as_a_config_map_swaps_them(
    start_pod: StartPod, start_gateway: StartGateway, tmp_path: Path
) -> None:
    stand = await start_gateway(await start_pod())
    for generation in (2, 3):
        folder = tmp_path / f"..{generation}"
        folder.mkdir()
        (folder / "policy.yaml").write_text(yaml.safe_dump(policy_object(generation)))
        draft = tmp_path / "..data_tmp"
        draft.symlink_to(folder)
        draft.replace(tmp_path / "..data")
        if generation == 2:
            stand.policy_path.unlink()
            stand.policy_path.symlink_to(tmp_path / "..data" / "policy.yaml")
        await stand.until(lambda g=generation: stand.gateway.loaded.generation == g)  # type: ignore[misc]


async def test_stricter_policy_drops_waiting_requests_only_by_their_own_deadline(
    start_pod: StartPod, start_gateway: StartGateway
) -> None:
    pod = await start_pod(slots=1, step=0.05)
    stand = await start_gateway(pod, mode="Unlimited")
    clients = [asyncio.create_task(ask(stand)) for _ in range(5)]
    await stand.until(lambda: len(stand.gateway.scheduler.ledger.queue) == 4)
    stand.write_policy(policy_object(2, mode="Bounded", queue={"maximumRequests": 0}))
    await stand.until(lambda: stand.gateway.loaded.generation == 2)
    assert (await stand.stats())["policy"]["mode"] == "Bounded"
    assert [status for status, _ in await asyncio.gather(*clients)] == [200] * 5
