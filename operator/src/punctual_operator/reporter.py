"""Says in the cluster what was found: status, Events, and a line in the log for each transition."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
from collections.abc import Mapping
from typing import Any

from punctual_admission.fields import PolicyError
from punctual_operator.api import Api, ApiError
from punctual_operator.cluster_events import build_event
from punctual_operator.conditions import merge, transitions
from punctual_operator.kinds import POLICY
from punctual_operator.names import API_VERSION, KIND
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.reconcile import invalid
from punctual_operator.store import Store

log = logging.getLogger(__name__)

Object = Mapping[str, Any]


def now() -> str:
    """The time as Kubernetes writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Reporter:
    """Writes nothing that is there already."""

    def __init__(self, api: Api, store: Store) -> None:
        self._api = api
        self._store = store

    async def report(self, policy: AdmissionPolicy, status: dict[str, Any]) -> None:
        """Write it if it says anything new, and an Event for each transition; raises ApiError."""
        if status == policy.status:
            return
        await self._write_status(policy.namespace, policy.name, policy.uid, status)
        before = policy.status.get("conditions") or ()
        for condition in transitions(before, status["conditions"]):
            told = (condition[name] for name in ("type", "status", "reason", "message"))
            log.info("policy %s/%s: %s is %s (%s): %s", *policy.key, *told)
            event = build_event(policy, condition, now())
            if event is not None:
                with contextlib.suppress(ApiError):
                    await self._api.create_event(event)

    async def report_invalid(self, given: Object, error: PolicyError) -> None:
        """Say that an object cannot be read; raises ApiError."""
        metadata, status = given["metadata"], dict(given.get("status") or {})
        generation, before = metadata.get("generation", 1), status.get("conditions") or ()
        status["conditions"] = merge(invalid(str(error)), before, generation, now())
        status["observedGeneration"] = generation
        if status != given.get("status"):
            namespace, name = metadata["namespace"], metadata["name"]
            await self._write_status(namespace, name, metadata["uid"], status)

    async def _write_status(
        self, namespace: str, name: str, uid: str, status: dict[str, Any]
    ) -> None:
        metadata = {"name": name, "namespace": namespace, "uid": uid}
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "status": status}
        try:
            self._store.put(POLICY, await self._api.apply(body, "status"))
        except ApiError as error:
            # 404: deleted meanwhile; 409: deleted and made anew, which is another queue entry
            if error.status not in {404, 409}:
                raise
