"""What is known of the cluster's objects, kept up to date by watches and full comparisons.

Objects of a kind are grouped: children and pods by the policy of their label, EndpointSlices by
their Service, policies by the Service they name. An older version of an object never replaces a
newer one, so what an apply returned can be stored at once, ahead of its watch event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from punctual_operator.kinds import BACKEND_SLICE, POLICY, Kind
from punctual_operator.names import SERVICE_OF_SLICE, policy_of

Object = Mapping[str, Any]
Group = tuple[str, str]
"""Namespace and name of the group."""


class Store:
    """The objects of all watched kinds."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[tuple[str, str], Object]] = defaultdict(dict)
        self._groups: dict[str, dict[Group, dict[str, Object]]] = defaultdict(dict)

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """One object."""
        return self._objects[kind.kind].get((namespace, name))

    def group(self, kind: Kind, namespace: str, name: str) -> list[Object]:
        """The objects of one group."""
        return list(self._groups[kind.kind].get((namespace, name), {}).values())

    def all(self, kind: Kind) -> list[Object]:
        """All objects of a kind."""
        return list(self._objects[kind.kind].values())

    def count(self, kind: Kind) -> int:
        """How many objects there are of a kind."""
        return len(self._objects[kind.kind])

    def put(self, kind: Kind, given: Object) -> bool:
        """Keep an object, unless what is known is as new; returns whether it was kept."""
        key = _key(given)
        known = self._objects[kind.kind].get(key)
        if known is not None and _version(known) >= _version(given):
            return False
        if known is not None:
            self._unlink(kind, known)
        kept = _slim(given)
        self._objects[kind.kind][key] = kept
        self._groups[kind.kind].setdefault(group_of(kind, kept), {})[key[1]] = kept
        return True

    def remove(self, kind: Kind, given: Object) -> bool:
        """Forget an object that is gone; returns whether it was known.

        One that was made anew under the same name stays.
        """
        known = self._objects[kind.kind].get(_key(given))
        if known is None or not _same(known, given):
            return False
        del self._objects[kind.kind][_key(given)]
        self._unlink(kind, known)
        return True

    def replace(
        self, kind: Kind, before: Iterable[Object], found: Iterable[Object]
    ) -> list[Object]:
        """Take a full list; returns the objects that had changed, appeared or gone unnoticed.

        `before` is what `all` returned before the list was asked for: what became known while it
        was under way may be newer than the list.
        """
        listed = {_key(given): given for given in found}
        changed = [given for given in listed.values() if self.put(kind, given)]
        kept = self._objects[kind.kind]
        absent = (known for known in before if _key(known) not in listed)
        gone = [known for known in absent if kept.get(_key(known)) is known]
        for known in gone:
            self.remove(kind, known)
        return changed + gone

    def _unlink(self, kind: Kind, known: Object) -> None:
        groups, group = self._groups[kind.kind], group_of(kind, known)
        groups[group].pop(known["metadata"]["name"], None)
        if not groups[group]:
            del groups[group]


def group_of(kind: Kind, given: Object) -> Group:
    """The group that an object belongs to."""
    metadata = given["metadata"]
    if kind is POLICY:
        name = ((given.get("spec") or {}).get("backend") or {}).get("service")
    elif kind is BACKEND_SLICE:
        name = (metadata.get("labels") or {}).get(SERVICE_OF_SLICE)
    else:
        name = policy_of(metadata.get("labels"))
    return metadata["namespace"], name or ""


def _key(given: Object) -> tuple[str, str]:
    return given["metadata"]["namespace"], given["metadata"]["name"]


def _version(given: Object) -> int:
    return int(given["metadata"].get("resourceVersion") or 0)


def _same(one: Object, other: Object) -> bool:
    return bool(one["metadata"].get("uid") == other["metadata"].get("uid"))


def _slim(given: Object) -> Object:
    # who set which field is the larger half of many objects, and nobody here reads it
    metadata = {key: value for key, value in given["metadata"].items() if key != "managedFields"}
    return {**given, "metadata": metadata}
