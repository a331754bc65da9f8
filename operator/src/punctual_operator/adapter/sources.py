"""Asks every gateway every few seconds, so that answers come from memory."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

import aiohttp

from punctual_operator.adapter.book import Book, Limits, Value
from punctual_operator.adapter.metrics import AdapterMetrics
from punctual_operator.adapter.series import SERIES, Series, read_signals
from punctual_operator.api import Api, ApiError
from punctual_operator.kinds import POD, POLICY
from punctual_operator.names import policy_of
from punctual_operator.observed import GatewayPod, read_pod
from punctual_operator.replies import ask

log = logging.getLogger(__name__)

TIMEOUT = aiohttp.ClientTimeout(total=3.0)
MAXIMUM_BYTES = 65_536
AT_ONCE = 64
SPREAD = 0.8
"""Share of a round over which its questions are spread."""
LONGEST_LABEL = 63

Key = tuple[str, str]
"""Namespace and name of a policy."""


@dataclasses.dataclass(slots=True)
class Entry:
    """One policy: the labels of its items, its gateway's replicas, what they say."""

    labels: dict[str, str]
    book: Book
    pods: tuple[GatewayPod, ...] = ()


class Sources:
    """All policies of the cluster and what their gateways last said."""

    def __init__(
        self, api: Api, metrics: AdapterMetrics, *, limits: Limits, port: int, poll: float
    ) -> None:
        self.entries: dict[Key, Entry] = {}
        self.asked = False
        """Whether a first round has been made."""
        self._api, self._metrics = api, metrics
        self._limits, self._port, self._poll = limits, port, poll
        self._session: aiohttp.ClientSession | None = None

    def of_namespace(self, namespace: str) -> list[Entry]:
        """The policies of one namespace, by name."""
        return [entry for key, entry in sorted(self.entries.items()) if key[0] == namespace]

    async def run(self) -> None:
        """Ask for ever; what fails is tried again in the next round."""
        while True:
            began = time.monotonic()
            await self.ask_all()
            await asyncio.sleep(max(self._poll - (time.monotonic() - began), 0.05))

    async def ask_all(self) -> None:
        """One round: which policies and replicas there are, and what each of these says."""
        try:
            policies, pods = await asyncio.gather(
                self._api.read_all(POLICY), self._api.read_all(POD)
            )
        except ApiError as error:
            # what was known of policies and pods still holds, and the gateways still answer
            log.warning("the API server did not list policies and pods: %s", error)
        else:
            self._take(policies, pods)
        due = [(key, pod) for key, entry in self.entries.items() for pod in entry.pods]
        # spread over the round, so that reads never wait for many answers at once
        gap = SPREAD * self._poll / len(due) if self.asked and due else 0.0
        asked = (self._ask(key, pod, place * gap) for place, (key, pod) in enumerate(due))
        await asyncio.gather(*asked)
        self._note()
        self._metrics.rounds.inc()
        self.asked = True

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _take(
        self, policies: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]
    ) -> None:
        ready: dict[Key, list[GatewayPod]] = {}
        for given in pods:
            metadata, pod = given["metadata"], read_pod(given)
            name = policy_of(metadata.get("labels"))
            if name is not None and pod.ready and pod.address:
                ready.setdefault((metadata["namespace"], name), []).append(pod)
        known, now = self.entries, time.monotonic()
        self.entries = {}
        for given in policies:
            key = given["metadata"]["namespace"], given["metadata"]["name"]
            entry = known.get(key) or Entry({}, Book(self._limits))
            entry.labels = _labels(given)
            entry.pods = tuple(ready.get(key, ()))
            entry.book.set_replicas((pod.name for pod in entry.pods), now)
            self.entries[key] = entry

    async def _ask(self, key: Key, pod: GatewayPod, pause: float) -> None:
        await asyncio.sleep(pause)
        try:
            given = await self._read(pod.address)
            policy = given["policy"]
            if (policy["namespace"], policy["name"]) != key:
                raise ValueError(f"it works for {policy['namespace']}/{policy['name']}")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, TypeError, KeyError) as no:
            log.debug("gateway %s of %s/%s did not answer: %r", pod.name, *key, no)
            return
        entry = self.entries.get(key)
        if entry is not None:
            entry.book.record(pod.name, read_signals(given.get("signals")), time.monotonic())

    async def _read(self, address: str) -> dict[str, Any]:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=AT_ONCE)
            self._session = aiohttp.ClientSession(connector=connector, timeout=TIMEOUT)
        return await ask(self._session, address, self._port, "/signals", MAXIMUM_BYTES)

    def _note(self) -> None:
        now, unread = time.monotonic(), 0
        for entry in self.entries.values():
            for series in SERIES.values():
                entry.book.note(series, now)
            unread += entry.book.silent(now)
        self._metrics.unread.set(unread)
        self._metrics.known.set(len(self.entries))


def value_of(entry: Entry, series: Series) -> Value | None:
    """A metric of a policy now; None where it is not known."""
    return entry.book.read(series, time.monotonic())


def _labels(policy: Mapping[str, Any]) -> dict[str, str]:
    """The labels that selectors see: the policy, and its model as far as it can be a label."""
    model = str((policy.get("spec") or {}).get("model", ""))
    return {"policy": policy["metadata"]["name"], "model": model[:LONGEST_LABEL]}
