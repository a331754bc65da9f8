"""Whose object it is, read from its owner references."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from punctual_operator.names import GROUP, KIND
from punctual_operator.policies import AdmissionPolicy


class Owner(Enum):
    """Who an object belongs to, from the point of view of one policy."""

    THIS = auto()
    EARLIER = auto()
    """A policy of the same name that is gone; the garbage collector will remove the object."""
    OTHER = auto()


def owner_of(given: Mapping[str, Any], policy: AdmissionPolicy) -> Owner:
    """Who owns an object that has the name of one of the policy's children."""
    references = given["metadata"].get("ownerReferences") or ()
    if any(reference.get("uid") == policy.uid for reference in references):
        return Owner.THIS
    same_name = any(
        # other groups have a kind of this name too
        str(reference.get("apiVersion")).startswith(f"{GROUP}/")
        and reference.get("kind") == KIND
        and reference.get("name") == policy.name
        for reference in references
    )
    return Owner.EARLIER if same_name else Owner.OTHER
