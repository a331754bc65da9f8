"""An AdmissionPolicy object as the operator reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from punctual_admission.fields import build
from punctual_admission.policy import Policy, policy_from_spec
from punctual_operator.names import API_VERSION, KIND
from punctual_operator.sections import Autoscaling, Gateway


@dataclasses.dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """Identity, spec and last written status of one object.

    `created` is the RFC 3339 time of creation, which sorts as text; `raw_spec` is the spec as the
    server stores it, defaults included.
    """

    name: str
    namespace: str
    uid: str
    generation: int
    created: str
    raw_spec: Mapping[str, Any]
    decision: Policy
    gateway: Gateway
    autoscaling: Autoscaling | None
    status: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def age_key(self) -> tuple[str, str]:
        """Sorts the oldest policy first; two of the same second by name."""
        return self.created, self.name

    @property
    def owner_reference(self) -> dict[str, Any]:
        """What makes the garbage collector remove a child together with the policy."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def parse(given: Mapping[str, Any]) -> AdmissionPolicy:
    """Read an object as the server returns it; raises PolicyError that lists every fault.

    The server has checked objects against the schema, so a fault means that the custom resource
    definition in the cluster is not the one of this operator.
    """
    metadata, spec = given["metadata"], given.get("spec") or {}
    decision = policy_from_spec(spec)
    scaling = spec.get("autoscaling")
    return AdmissionPolicy(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata.get("generation", 1),
        created=metadata.get("creationTimestamp", ""),
        raw_spec=spec,
        decision=decision,
        gateway=build(Gateway, spec.get("gateway") or {}, "spec.gateway"),
        autoscaling=None if scaling is None else build(Autoscaling, scaling, "spec.autoscaling"),
        status=given.get("status") or {},
    )
