"""Whose object it is that has the name of a policy's child."""

from __future__ import annotations

from typing import Any

import pytest

from punctual_operator.ownership import Owner, owner_of


@pytest.mark.parametrize(
    ("change", "owner"),
    [
        ({}, Owner.THIS),
        ({"uid": "of an earlier one"}, Owner.EARLIER),
        ({"uid": "x", "apiVersion": "punctual.dev/v2"}, Owner.EARLIER),
        ({"uid": "x", "name": "another"}, Owner.OTHER),
        ({"uid": "x", "apiVersion": "policies.example/v1"}, Owner.OTHER),
    ],
)
def test_owner_is_read_from_the_reference(
    change: dict[str, str], owner: Owner, make_policy: Any
) -> None:
    policy = make_policy()
    references = [policy.owner_reference | change]
    assert owner_of({"metadata": {"ownerReferences": references}}, policy) is owner


def test_object_without_an_owner_is_somebody_elses(make_policy: Any) -> None:
    assert owner_of({"metadata": {}}, make_policy()) is Owner.OTHER
