"""Service times from outside: requests sent one after the other to an otherwise idle server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from punctual_admission.outcomes import Outcome
from punctual_lab.load.client import Target, build_body, build_session, send
from punctual_lab.measures import median
from punctual_lab.traces import TraceRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aiohttp

PROBE_TOKENS = 16


async def measure_service_times(
    target: Target, lengths: Sequence[int], *, prompt_tokens: int, repeats: int
) -> dict[int, float]:
    """Return the median seconds of a request alone for each answer length.

    Rounds go through all lengths in turn, so that a slow second of the machine touches each alike.
    Raises ConnectionError when the server does not answer a request in full.
    """
    seconds: dict[int, list[float]] = {tokens: [] for tokens in lengths}
    async with build_session() as session:
        await send_alone(session, target, min(lengths), prompt_tokens)
        for _ in range(repeats):
            for tokens in lengths:
                seconds[tokens].append(await send_alone(session, target, tokens, prompt_tokens))
    return {tokens: median(values) for tokens, values in seconds.items()}


async def probe_speed(target: Target, *, prompt_tokens: int, repeats: int) -> float:
    """Return the median seconds of a 16-token request alone: the server's speed now."""
    times = await measure_service_times(
        target, [PROBE_TOKENS], prompt_tokens=prompt_tokens, repeats=repeats
    )
    return times[PROBE_TOKENS]


async def send_alone(
    session: aiohttp.ClientSession, target: Target, tokens: int, prompt_tokens: int
) -> float:
    """Send one request without a deadline and return its seconds. Raises ConnectionError."""
    request = TraceRequest(0, 0.0, prompt_tokens, tokens, None)
    attempt = await send(session, target, request, build_body(request, target))
    if attempt.outcome is not Outcome.GOOD:
        msg = (
            f"{target.url} did not answer a request of {tokens} tokens sent alone: "
            f"status {attempt.status}, {attempt.refusal_code or attempt.error}"
        )
        raise ConnectionError(msg)
    return attempt.latency_ms / 1e3
