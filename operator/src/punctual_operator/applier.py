"""Brings the children of a policy to what is wanted, with no request where nothing differs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from punctual_operator.api import Api, ApiError
from punctual_operator.drift import contains, with_digest
from punctual_operator.kinds import BY_KIND, Kind, child_key
from punctual_operator.names import FIELD_MANAGER
from punctual_operator.observed import ChildKey, Failure
from punctual_operator.ownership import Owner, owner_of
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.resources.metadata import Manifest
from punctual_operator.store import Store

LATER = ("RoleBinding", "Deployment")
"""Applied one after the other when all else is there: the server wants the role of a binding to
exist, and no pod should start without what it needs."""

REPLICAS_MANAGER = f"{FIELD_MANAGER}-replicas"
"""Holds a Deployment's number of replicas between the operator and an autoscaler."""

ENDING = "because it is being terminated"
"""How the API server refuses objects for a namespace that is being deleted."""

Object = Mapping[str, Any]


class Outcome:
    """What applying one policy's children came to."""

    def __init__(self) -> None:
        self.failures: dict[ChildKey, Failure] = {}
        self.taken: set[ChildKey] = set()

    @property
    def namespace_ends(self) -> bool:
        """Whether nothing can be made any more because the namespace is being deleted."""
        return any(ENDING in failure.message for failure in self.failures.values())


class Applier:
    """Applies by server-side apply; what it read or wrote goes into the store at once."""

    def __init__(self, api: Api, store: Store) -> None:
        self._api = api
        self._store = store
        self._settled: dict[tuple[str, str, str], tuple[str, str]] = {}

    async def apply(self, policy: AdmissionPolicy, manifests: Iterable[Manifest]) -> Outcome:
        """Apply what differs. A child that fails does not keep the others from being applied."""
        outcome = Outcome()
        everything = [with_digest(manifest) for manifest in manifests]
        first = [manifest for manifest in everything if manifest["kind"] not in LATER]
        later = [[one for one in everything if one["kind"] == kind] for kind in LATER]
        for batch in (first, *later):
            await asyncio.gather(*(self._apply_one(policy, one, outcome) for one in batch))
        return outcome

    async def prune(self, policy: AdmissionPolicy, keys: Iterable[ChildKey]) -> None:
        """Delete children that are no longer wanted; raises ApiError."""
        for kind, name in keys:
            live = self._store.get(BY_KIND[kind], policy.namespace, name)
            if live is not None:
                await self._delete(kind, live)

    async def find_unlabelled(
        self, policy: AdmissionPolicy, keys: Iterable[ChildKey]
    ) -> dict[ChildKey, Object]:
        """Of these children those that still are the policy's, though they lost their labels."""
        found: dict[ChildKey, Object] = {}
        for kind, name in keys:
            live = await self._api.get(BY_KIND[kind], policy.namespace, name)
            if live is not None and owner_of(live, policy) is Owner.THIS:
                self._store.put(BY_KIND[kind], live)
                found[kind, name] = live
        return found

    def forget(self, kind: Kind, namespace: str, name: str) -> None:
        """Drop what is remembered about an object that is gone."""
        self._settled.pop((kind.kind, namespace, name), None)

    async def _apply_one(
        self, policy: AdmissionPolicy, manifest: Manifest, outcome: Outcome
    ) -> None:
        key = child_key(manifest)
        try:
            if not await self._try_apply(policy, manifest):
                outcome.taken.add(key)
        except ApiError as error:
            outcome.failures[key] = Failure(error.status, error.message)

    async def _try_apply(self, policy: AdmissionPolicy, manifest: Manifest) -> bool:
        kind, (_, name) = BY_KIND[manifest["kind"]], child_key(manifest)
        live: Any = self._store.get(kind, policy.namespace, name)
        if live is None:
            live = await self._api.get(kind, policy.namespace, name)
        if live is not None:
            owner = owner_of(live, policy)
            if owner is Owner.OTHER:
                return False
            if owner is Owner.EARLIER:
                await self._delete(manifest["kind"], live)
            elif self._is_settled(live, manifest):
                # where it was only read, so that it counts among the children
                self._store.put(kind, live)
                return True
            else:
                await self._hand_over_replicas(live, manifest)
        applied = await self._api.apply(manifest)
        self._store.put(kind, applied)
        self._settled[_place(applied)] = _state(applied)
        return True

    async def _hand_over_replicas(self, live: Object, manifest: Manifest) -> None:
        """Keep the number of replicas where the operator sets it no longer.

        The server takes a field away that its one manager applies no more, and a Deployment
        without `replicas` has one. So another manager holds the number until the autoscaler
        changes it; where the autoscaler has set it already, the claim is a conflict and not made.
        """
        replicas = (live.get("spec") or {}).get("replicas")
        if manifest["kind"] != "Deployment" or "replicas" in manifest["spec"] or replicas is None:
            return
        metadata = {name: live["metadata"][name] for name in ("name", "namespace", "uid")}
        head = {name: manifest[name] for name in ("apiVersion", "kind")}
        claim = head | {"metadata": metadata, "spec": {"replicas": replicas}}
        try:
            await self._api.apply(claim, manager=REPLICAS_MANAGER, force=False)
        except ApiError as error:
            # 404: deleted meanwhile
            if error.status not in {404, 409}:
                raise

    def _is_settled(self, live: Object, manifest: Manifest) -> bool:
        # applying to an object that is as the last apply left it changes nothing, whatever differs
        return contains(live, manifest) or (
            self._settled.get(_place(live)) == _state(live)
            and contains(live["metadata"].get("annotations"), manifest["metadata"]["annotations"])
        )

    async def _delete(self, kind: str, live: Object) -> None:
        metadata = live["metadata"]
        await self._api.delete(
            BY_KIND[kind], metadata["namespace"], metadata["name"], metadata["uid"]
        )
        self._store.remove(BY_KIND[kind], live)
        self._settled.pop(_place(live), None)


def _place(live: Object) -> tuple[str, str, str]:
    metadata = live["metadata"]
    return str(live.get("kind", "")), metadata["namespace"], metadata["name"]


def _state(live: Object) -> tuple[str, str]:
    metadata = live["metadata"]
    return metadata["uid"], metadata["resourceVersion"]
