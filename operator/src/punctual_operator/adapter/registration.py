"""Who answers for `external.metrics.k8s.io` in this cluster: one owner, and we take it from nobody.

Another owner (KEDA, prometheus-adapter, a vendor's agent) is left alone; the adapter then says so
in its log and its metrics, and the operator in the status of each policy that is autoscaled.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Owner(StrEnum):
    """Who has the registration."""

    NOBODY = "nobody"
    US = "us"
    OTHER = "other"


@dataclasses.dataclass(frozen=True, slots=True)
class Registration:
    """What the APIService says: the owner, and whether our certificates' bundle is in it."""

    owner: Owner
    holder: str = ""
    """Namespace and name of the Service that has it."""
    current: bool = False


def read_registration(
    found: Mapping[str, Any] | None, service: tuple[str, str, int], bundle: str
) -> Registration:
    """Read an APIService; None: there is none."""
    if found is None:
        return Registration(Owner.NOBODY)
    spec = found.get("spec") or {}
    named = spec.get("service") or {}
    holder = f"{named.get('namespace', '')}/{named.get('name', '')}"
    if (named.get("namespace"), named.get("name")) != service[:2]:
        return Registration(Owner.OTHER, holder)
    wanted = base64.b64encode(bundle.encode()).decode()
    current = spec.get("caBundle") == wanted and named.get("port", 443) == service[2]
    return Registration(Owner.US, holder, current)
