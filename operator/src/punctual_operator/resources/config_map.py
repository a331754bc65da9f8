"""The policy as a file in the gateway's pods."""

from __future__ import annotations

from punctual_operator.names import API_VERSION, KIND, POLICY_FILE
from punctual_operator.policies import AdmissionPolicy
from punctual_operator.resources.metadata import Manifest, build_head
from punctual_operator.yaml_text import yaml_text


def build_config_map(policy: AdmissionPolicy) -> Manifest:
    """A ConfigMap with the object itself, so that the gateway can say which generation it applies.

    It is mounted and not named after its content: a new version reaches running pods and replaces
    none of them.
    """
    metadata = {
        "name": policy.name,
        "namespace": policy.namespace,
        "generation": policy.generation,
    }
    given = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": dict(policy.raw_spec),
    }
    return build_head(policy, "v1", "ConfigMap") | {"data": {POLICY_FILE: yaml_text(given)}}
