"""Whether a live object holds what is wanted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual_operator.drift import contains, with_digest
from punctual_operator.names import APPLIED_HASH

values = st.recursive(
    st.one_of(st.integers(), st.text(max_size=3), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(values)
def test_anything_contains_itself(value: Any) -> None:
    assert contains(value, value)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text(max_size=3), values), st.dictionaries(st.text(max_size=3), values))
def test_additions_of_others_do_not_matter(wanted: dict[str, Any], added: dict[str, Any]) -> None:
    assert contains(added | wanted, wanted)


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({"a": 1}, {"a": 2}),
        ({}, {"a": 1}),
        ({"a": None}, {"a": {}}),
        ([1], [1, 2]),
        ([{"a": 1}, {"b": 2}], [{"b": 2}, {"a": 1}]),
        ("a", ["a"]),
    ],
)
def test_difference_is_seen(live: Any, wanted: Any) -> None:
    assert not contains(live, wanted)


def test_owners_may_be_in_any_order_and_company() -> None:
    live = {"ownerReferences": [{"uid": "other"}, {"uid": "ours", "controller": True}]}
    assert contains(live, {"ownerReferences": [{"uid": "ours"}]})
    assert not contains(live, {"ownerReferences": [{"uid": "third"}]})


def test_digest_depends_on_the_content_alone() -> None:
    one = {"kind": "A", "metadata": {"name": "x"}, "spec": {"a": 1, "b": 2}}
    same = {"spec": {"b": 2, "a": 1}, "metadata": {"name": "x"}, "kind": "A"}
    other = {**one, "spec": {"a": 1}}
    digests = [
        with_digest(given)["metadata"]["annotations"][APPLIED_HASH] for given in (one, same, other)
    ]
    assert digests[0] == digests[1] != digests[2]
    assert "annotations" not in one["metadata"]


def test_selector_is_compared_as_a_whole() -> None:
    wanted = {"spec": {"selector": {"app": "gpt2"}}}
    assert contains({"spec": {"selector": {"app": "gpt2"}}}, wanted)
    assert not contains({"spec": {"selector": {"app": "gpt2", "tier": "x"}}}, wanted)
