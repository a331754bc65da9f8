"""Asks gateway replicas what they apply and see, by `/stats` at the address of their pod."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterable
from typing import Any

import aiohttp

from punctual_operator.names import HTTP_PORT
from punctual_operator.observed import GatewayPod
from punctual_operator.replies import ask
from punctual_operator.reports import GatewayReport, read_report

TIMEOUT = aiohttp.ClientTimeout(total=1.5)
MAXIMUM_BYTES = 4 * 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What one replica last said, or why it said nothing; `at` is monotonic seconds."""

    address: str
    at: float
    report: GatewayReport | None
    error: str = ""


class GatewayClient:
    """Remembers the last answer of each replica."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._answers: dict[tuple[str, str], Answer] = {}

    def known(self, namespace: str, pods: Iterable[GatewayPod]) -> dict[str, Answer]:
        """The last answers of these replicas, by pod name."""
        found = {pod.name: self._answers.get((namespace, pod.name)) for pod in pods if pod.ready}
        return {name: answer for name, answer in found.items() if answer is not None}

    async def ask(
        self, namespace: str, pods: Iterable[GatewayPod], generation: int, age: float
    ) -> None:
        """Ask the ready replicas whose answer is missing, older than `age` or not up to date."""
        now = time.monotonic()
        due = []
        for pod in pods:
            answer = self._answers.get((namespace, pod.name))
            if pod.ready and (answer is None or _is_due(answer, pod, generation, now - age)):
                due.append(pod)
        await asyncio.gather(*(self._ask_one(namespace, pod) for pod in due))

    def forget(self, namespace: str, pod: str) -> None:
        """Forget a replica that is gone."""
        self._answers.pop((namespace, pod), None)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _ask_one(self, namespace: str, pod: GatewayPod) -> None:
        key = namespace, pod.name
        earlier, answer = self._answers.get(key), await self._fetch(pod)
        if answer.report is None and earlier is not None and earlier.report is not None:
            # one answer that is late is no news about a replica that has answered before
            answer = await self._fetch(pod)
        self._answers[key] = answer

    async def _fetch(self, pod: GatewayPod) -> Answer:
        now = time.monotonic()
        try:
            report = read_report(await self._read(pod.address))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TypeError) as error:
            return Answer(pod.address, now, None, _words(error))
        return Answer(pod.address, now, report)

    async def _read(self, address: str) -> dict[str, Any]:
        if self._session is None:
            # a connection for each question: replicas come and go, and questions are rare
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True, limit=32), timeout=TIMEOUT
            )
        return await ask(self._session, address, HTTP_PORT, "/stats", MAXIMUM_BYTES)


def _is_due(answer: Answer, pod: GatewayPod, generation: int, oldest: float) -> bool:
    current = answer.report is not None and answer.report.generation >= generation
    return not current or answer.at <= oldest or answer.address != pod.address


def _words(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error)
