"""What is known of the cluster."""

from __future__ import annotations

from typing import Any

from punctual_operator.kinds import BACKEND_SLICE, BY_KIND, POD, POLICY
from punctual_operator.names import FIELD_MANAGER, MANAGED_BY, POLICY_LABEL, SERVICE_OF_SLICE
from punctual_operator.store import Store

SERVICE = BY_KIND["Service"]


def thing(name: str, version: int, uid: str = "u1", **more: Any) -> dict[str, Any]:
    metadata = {
        "namespace": "shop",
        "name": name,
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {MANAGED_BY: FIELD_MANAGER, POLICY_LABEL: "gpt2"},
        "managedFields": [{"manager": "x"}],
    }
    return {"metadata": metadata, **more}


def test_older_news_is_ignored() -> None:
    store = Store()
    assert store.put(SERVICE, thing("a", 5, spec=1))
    assert not store.put(SERVICE, thing("a", 5, spec=2))
    assert not store.put(SERVICE, thing("a", 4, spec=3))
    found = store.get(SERVICE, "shop", "a")
    assert found is not None
    assert found["spec"] == 1
    assert "managedFields" not in found["metadata"]


def test_deletion_of_an_earlier_object_of_the_name_is_ignored() -> None:
    store = Store()
    store.put(SERVICE, thing("a", 9, uid="new"))
    assert not store.remove(SERVICE, thing("a", 8, uid="old"))
    assert store.remove(SERVICE, thing("a", 9, uid="new"))
    assert not store.remove(SERVICE, thing("a", 9, uid="new"))


def test_objects_are_found_by_group() -> None:
    store = Store()
    store.put(POD, thing("a", 1))
    slice_ = thing("s", 2)
    slice_["metadata"]["labels"] = {SERVICE_OF_SLICE: "pods"}
    store.put(BACKEND_SLICE, slice_)
    store.put(POLICY, thing("gpt2", 3, spec={"backend": {"service": "pods"}}))
    assert [one["metadata"]["name"] for one in store.group(POD, "shop", "gpt2")] == ["a"]
    assert len(store.group(BACKEND_SLICE, "shop", "pods")) == 1
    assert len(store.group(POLICY, "shop", "pods")) == 1
    assert store.group(POLICY, "elsewhere", "pods") == []


def test_object_that_changes_its_group_is_in_the_new_one_alone() -> None:
    store = Store()
    store.put(POLICY, thing("gpt2", 3, spec={"backend": {"service": "old"}}))
    store.put(POLICY, thing("gpt2", 4, spec={"backend": {"service": "new"}}))
    assert store.group(POLICY, "shop", "old") == []
    assert len(store.group(POLICY, "shop", "new")) == 1


def test_full_list_tells_what_no_watch_told() -> None:
    store = Store()
    for given in (thing("same", 1), thing("changed", 2), thing("gone", 3)):
        store.put(SERVICE, given)
    listed = [thing("same", 1), thing("changed", 7), thing("new", 8)]
    missed = store.replace(SERVICE, store.all(SERVICE), listed)
    names = {given["metadata"]["name"] for given in missed}
    assert names == {"changed", "gone", "new"}
    assert store.count(SERVICE) == len(store.all(SERVICE)) == 3


def test_what_is_told_while_a_list_is_under_way_is_not_lost_by_it() -> None:
    store = Store()
    store.put(SERVICE, thing("old", 1))
    store.put(SERVICE, thing("made anew", 2, uid="u1"))
    before = store.all(SERVICE)
    store.put(SERVICE, thing("young", 9))
    store.put(SERVICE, thing("made anew", 9, uid="u2"))
    missed = store.replace(SERVICE, before, [])
    assert [given["metadata"]["name"] for given in missed] == ["old"]
    assert {given["metadata"]["name"] for given in store.all(SERVICE)} == {"young", "made anew"}
