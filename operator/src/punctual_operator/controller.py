"""The controller: which policies have to be worked on, and the work on one of them.

Watches (through kopf, see `handlers`) tell what changed; whatever it was, the policy concerned is
put into a queue and looked at as a whole. Nothing is derived from the kind of event, so a lost one
costs time until the next full comparison, and never correctness.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
import time
from collections.abc import Mapping
from typing import Any

from punctual_admission.fields import PolicyError
from punctual_operator.api import Api, ApiError
from punctual_operator.applier import Applier, Outcome
from punctual_operator.conditions import NEEDED, Finding, Status
from punctual_operator.gateway_client import GatewayClient
from punctual_operator.kinds import BACKEND_SLICE, POD, POLICY, WATCHED, Kind
from punctual_operator.metrics import Metrics
from punctual_operator.observed import Observed
from punctual_operator.observer import Observer
from punctual_operator.policies import AdmissionPolicy, parse
from punctual_operator.reconcile import Desired, build_status, reconcile
from punctual_operator.reporter import Reporter, now
from punctual_operator.settings import Settings
from punctual_operator.store import Store, group_of
from punctual_operator.work_queue import WorkQueue

log = logging.getLogger(__name__)

Object = Mapping[str, Any]
Key = tuple[str, str]
"""Namespace and name of a policy."""

PENDING_SECONDS = 1.0
"""First delay until a gateway that has not taken a new policy is asked again; it doubles."""

ENDING_SECONDS = 10.0
"""How long nothing is tried in a namespace that is being deleted."""


class Controller:
    """Keeps the children and the status of all policies as they should be."""

    def __init__(self, settings: Settings, api: Api, metrics: Metrics) -> None:
        self._settings = settings
        self._api = api
        self._metrics = metrics
        self._store = Store()
        self._gateways = GatewayClient()
        self._observer = Observer(api, self._store, self._gateways)
        self._applier = Applier(api, self._store)
        self._reporter = Reporter(api, self._store)
        self._queue: WorkQueue[Key] = WorkQueue()
        self._pending: dict[Key, float] = {}
        self._ending: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._heard = time.monotonic()
        metrics.watch_policies(lambda: self._store.all(POLICY))

    async def start(self) -> None:
        """Learn what there is, then begin to work; raises ApiError when that cannot be read."""
        await self._compare(expected=True)
        loops = [self._work() for _ in range(self._settings.workers)]
        self._tasks = [
            asyncio.create_task(loop) for loop in (*loops, self._compare_often(), self._beat())
        ]

    async def stop(self) -> None:
        """End all work; what was begun is taken up by the next process."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._queue.close()
        await self._gateways.close()
        await self._api.close()

    def silent_seconds(self) -> float:
        """How long nothing was heard from the API server."""
        return time.monotonic() - self._heard

    def saw(self, kind: Kind, gone: bool, given: Object) -> None:
        """Take a watch event; old news is ignored."""
        self._heard = time.monotonic()
        earlier = self._store.get(kind, given["metadata"]["namespace"], given["metadata"]["name"])
        news = self._store.remove(kind, given) if gone else self._store.put(kind, given)
        if news:
            self._enqueue(kind, given)
            if earlier is not None and group_of(kind, earlier) != group_of(kind, given):
                self._enqueue(kind, earlier)
            if gone:
                self._forget(kind, given)

    def _forget(self, kind: Kind, given: Object) -> None:
        """Drop what is remembered about an object that is gone."""
        metadata = given["metadata"]
        if kind is POD:
            self._gateways.forget(metadata["namespace"], metadata["name"])
        self._applier.forget(kind, metadata["namespace"], metadata["name"])

    def _enqueue(self, kind: Kind, given: Object) -> None:
        """Queue the policies that a changed object concerns."""
        namespace, group = group_of(kind, given)
        if kind is POLICY:
            self._queue.add((namespace, given["metadata"]["name"]))
        if kind is BACKEND_SLICE:
            self._observer.forget_service(namespace, group)
        if kind in {POLICY, BACKEND_SLICE}:
            for policy in self._store.group(POLICY, namespace, group):
                self._queue.add((namespace, policy["metadata"]["name"]))
        elif group:
            self._queue.add((namespace, group))
        self._metrics.waiting.set(len(self._queue))

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            self._metrics.waiting.set(len(self._queue))
            try:
                await self._work_on(key)
            finally:
                self._queue.done(key)

    async def _work_on(self, key: Key) -> None:
        start = time.perf_counter()
        try:
            delay = await self._process(key)
        except Exception as error:  # one policy must not end the work on all others
            delay = self._queue.add_failed(key)
            self._metrics.reconciles.labels("error").inc()
            shown = None if isinstance(error, ApiError) else error
            log.warning("policy %s/%s: %s; next try in %.1f s", *key, error, delay, exc_info=shown)
            return
        self._metrics.reconciles.labels("ok").inc()
        self._metrics.reconcile_seconds.observe(time.perf_counter() - start)
        if delay is None:
            self._queue.forgive(key)
        else:
            self._queue.add_after(key, delay)

    async def _process(self, key: Key) -> float | None:
        """Work on one policy; returns after how many seconds to look again."""
        given = self._store.get(POLICY, *key)
        if self._ending.get(key[0], 0.0) > time.monotonic():
            return ENDING_SECONDS
        self._ending.pop(key[0], None)
        if given is None or given["metadata"].get("deletionTimestamp"):
            # its children go by their owner references
            self._pending.pop(key, None)
            return None
        try:
            policy = parse(given)
        except PolicyError as error:
            await self._reporter.report_invalid(given, error)
            return None
        return await self._reconcile(policy)

    async def _reconcile(self, policy: AdmissionPolicy) -> float:
        image = self._settings.image
        observed = await self._observer.observe(policy)
        outcome = await self._apply(policy, reconcile(policy, observed, image), observed)
        if outcome.namespace_ends:
            self._ending[policy.namespace] = time.monotonic() + ENDING_SECONDS
            return ENDING_SECONDS
        # asked after applying, so that a gateway that does not answer delays no change
        await self._ask(policy, observed)
        observed = dataclasses.replace(
            self._observer.look(policy, observed),
            failures=outcome.failures,
            taken=frozenset(outcome.taken),
        )
        desired = reconcile(policy, observed, image)
        await self._reporter.report(policy, build_status(policy, observed, desired, now()))
        if outcome.failures:
            first = next(iter(outcome.failures.items()))
            raise ApiError(first[1].status, f"{' '.join(first[0])}: {first[1].message}")
        self._queue.forgive(policy.key)
        return self._next_look(policy, observed, desired)

    async def _apply(
        self, policy: AdmissionPolicy, desired: Desired, observed: Observed
    ) -> Outcome:
        outcome = await self._applier.apply(policy, desired.manifests)
        if observed.older_rival is None:
            await self._applier.prune(policy, sorted(desired.prune))
            await self._prune_unlabelled(policy, desired, observed)
        return outcome

    async def _ask(self, policy: AdmissionPolicy, observed: Observed) -> None:
        age = self._settings.attention if _needs_attention(policy) else self._settings.report
        await self._gateways.ask(policy.namespace, observed.pods, policy.generation, age)

    async def _prune_unlabelled(
        self, policy: AdmissionPolicy, desired: Desired, observed: Observed
    ) -> None:
        recorded = {(item["kind"], item["name"]) for item in policy.status.get("inventory") or ()}
        wanted = {(one["kind"], one["metadata"]["name"]) for one in desired.manifests}
        lost = recorded - wanted - set(observed.children)
        if lost:
            found = await self._applier.find_unlabelled(policy, sorted(lost))
            await self._applier.prune(policy, found)

    def _next_look(self, policy: AdmissionPolicy, observed: Observed, desired: Desired) -> float:
        key = policy.key
        if any(report.generation < policy.generation for report in observed.reports.values()):
            delay = self._pending.get(key, PENDING_SECONDS)
            self._pending[key] = min(delay * 2, self._settings.attention)
            return min(delay, self._settings.attention)
        self._pending.pop(key, None)
        troubled = any(_is_trouble(finding) for finding in desired.findings)
        delay = self._settings.attention if troubled else self._settings.report
        return delay * random.uniform(0.9, 1.1)

    async def _compare_often(self) -> None:
        while True:
            await asyncio.sleep(self._settings.resync)
            try:
                await self._compare(expected=False)
            except ApiError as error:
                log.warning("the full comparison failed: %s", error)

    async def _compare(self, *, expected: bool) -> None:
        """Compare all that is known with all that there is, and queue every policy."""
        for kind in WATCHED:
            before = self._store.all(kind)
            found = [
                item
                for namespace in self._settings.namespaces or (None,)
                for item in await self._api.read_all(kind, namespace)
            ]
            changed = self._store.replace(kind, before, found)
            self._heard = time.monotonic()
            if not expected:
                self._metrics.missed.inc(len(changed))
            for given in changed:
                self._enqueue(kind, given)
                metadata = given["metadata"]
                if self._store.get(kind, metadata["namespace"], metadata["name"]) is None:
                    self._forget(kind, given)
        for policy in self._store.all(POLICY):
            self._enqueue(POLICY, policy)
        self._metrics.policies.set(self._store.count(POLICY))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._settings.heartbeat)
            with contextlib.suppress(ApiError):
                await self._api.read_all(
                    POLICY, next(iter(self._settings.namespaces), None), limit=1
                )
                self._heard = time.monotonic()
            self._metrics.policies.set(self._store.count(POLICY))


def _is_trouble(finding: Finding) -> bool:
    return finding.type in NEEDED and finding.status is not Status.TRUE


def _needs_attention(policy: AdmissionPolicy) -> bool:
    return any(
        condition["type"] in NEEDED and condition["status"] != Status.TRUE
        for condition in policy.status.get("conditions") or ()
    )
