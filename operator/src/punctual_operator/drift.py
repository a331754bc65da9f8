"""Whether a child has to be applied: what is wanted against what is there.

The server fills in defaults and others may own fields, so the wanted manifest has to be contained
in the live object, not equal to it. A field that is no longer wanted shows in the digest of the
manifest, which the object carries as an annotation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from punctual_operator.names import APPLIED_HASH
from punctual_operator.resources.metadata import Manifest

SETS = frozenset({"ownerReferences", "subjects"})
"""Lists to which others may add, in any order."""
WHOLE = frozenset({"selector", "podSelector", "labelSelector"})
"""Maps that are one value: a label added to a selector makes it select something else."""


def with_digest(manifest: Manifest) -> Manifest:
    """The manifest with its own digest among the annotations."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    annotations = {**manifest["metadata"].get("annotations", {}), APPLIED_HASH: digest}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}


def contains(live: Any, wanted: Any, field: str = "") -> bool:
    """Whether everything that is wanted is there."""
    if isinstance(wanted, Mapping) and field not in WHOLE:
        return isinstance(live, Mapping) and all(
            name in live and contains(live[name], value, name) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and _list_contains(live, wanted, field)
    return bool(live == wanted)


def _list_contains(live: list[Any], wanted: list[Any], field: str) -> bool:
    if field in SETS:
        return all(any(contains(there, item) for there in live) for item in wanted)
    return len(live) == len(wanted) and all(
        contains(there, item) for there, item in zip(live, wanted, strict=True)
    )
