"""The CustomResourceDefinition, generated from the declarations of the policy's fields.

`python -m punctual_operator.crd` prints it; `manifests/crd.yaml` holds what it prints.
"""

from __future__ import annotations

import sys
from typing import Any

from punctual_admission.fields import camel, schema
from punctual_admission.policy import Policy
from punctual_operator.conditions import LONGEST_MESSAGE, LONGEST_REASON
from punctual_operator.names import GROUP, KIND, MAXIMUM_NAME_LENGTH, PLURAL, VERSION
from punctual_operator.sections import Autoscaling, Gateway
from punctual_operator.yaml_text import yaml_text

Schema = dict[str, Any]

OPERATOR_SECTIONS = (
    ("gateway", Gateway, "The Deployment of the gateway.", True),
    ("autoscaling", Autoscaling, "The number of model pods; absent: not scaled.", False),
)
"""Name, declaration, description, and whether absence means all defaults (else: off)."""

SPEC_RULES = (
    ("size(self.backend.service) > 0", "`backend.service` must name a headless Service"),
    (
        "!has(self.backend.stepMicroseconds) || self.backend.stepMicroseconds.isSorted()",
        "`backend.stepMicroseconds` must not decrease",
    ),
    (
        "self.deadline.maximumMilliseconds <= self.gateway.finishSeconds * 1000",
        "`deadline.maximumMilliseconds` must be less than or equal to `gateway.finishSeconds` "
        "times 1000, so that a stopping gateway can finish what it admitted",
    ),
)
"""CEL rules that span sections, each with its message."""

NAME_RULE = (
    f"size(self.metadata.name) <= {MAXIMUM_NAME_LENGTH} && "
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    f"`metadata.name` must be a DNS label of at most {MAXIMUM_NAME_LENGTH} characters that "
    "begins with a letter, because the gateway's Service is named after it",
)

LARGEST = 2**53 - 1
"""The largest integer that every JSON reader keeps exactly."""

PRINTER_COLUMNS = (
    ("Mode", "string", ".spec.mode"),
    ("Deadline", "integer", ".spec.deadline.defaultMilliseconds"),
    ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
    ("Gateways", "integer", ".status.readyGateways"),
    ("Backends", "integer", ".status.readyBackends"),
    ("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def build_crd() -> Schema:
    """The whole CustomResourceDefinition."""
    names = {
        "plural": PLURAL,
        "singular": KIND.lower(),
        "kind": KIND,
        "listKind": f"{KIND}List",
        "shortNames": ["ap"],
        "categories": ["punctual"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [_version()]},
    }


def _version() -> Schema:
    columns = [
        {"name": name, "type": kind, "jsonPath": path} for name, kind, path in PRINTER_COLUMNS
    ]
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": object_schema()},
    }


def object_schema() -> Schema:
    """The OpenAPI schema of an AdmissionPolicy object."""
    return {
        "type": "object",
        "description": "An admission gateway in front of a pool of model pods.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec_schema(),
            "status": status_schema(),
        },
        "x-kubernetes-validations": _rules((NAME_RULE,)),
    }


def spec_schema() -> Schema:
    """The decision part, declared with the admission core, and the operator's own sections."""
    rendered = schema(Policy)
    rendered["description"] = "What the gateway is to do."
    for name, kind, description, always in OPERATOR_SECTIONS:
        section = schema(kind) | {"description": description}
        if always:
            section["default"] = _defaults(section)
        rendered["properties"][camel(name)] = section
    rules = rendered.setdefault("x-kubernetes-validations", [])
    rules.extend(_rules(SPEC_RULES))
    return rendered


def _defaults(section: Schema) -> Schema:
    # a default object is checked against the rules before nested defaults are filled in,
    # so it has to spell them out
    properties = section["properties"].items()
    return {name: field["default"] for name, field in properties if "default" in field}


def _rules(rules: tuple[tuple[str, str], ...]) -> list[Schema]:
    return [{"rule": rule, "message": message} for rule, message in rules]


def status_schema() -> Schema:
    """What the operator reports."""
    return {
        "type": "object",
        "description": "What the operator found; written by the operator alone.",
        "properties": {
            "observedGeneration": _count(
                "Generation of the spec that this status describes.", maximum=LARGEST
            ),
            "address": _text("URL of the gateway inside the cluster.", 512),
            "gateways": _count("Gateway replicas that are asked for."),
            "readyGateways": _count("Gateway replicas that are ready."),
            "readyBackends": _count("Model pods that are ready, by the Service's endpoints."),
            "conditions": _conditions(),
            "inventory": _inventory(),
        },
    }


def _text(description: str, maximum: int) -> Schema:
    return {"type": "string", "maxLength": maximum, "description": description}


def _count(description: str, maximum: int = 2**31 - 1) -> Schema:
    wide = maximum > 2**31 - 1
    return {
        "type": "integer",
        "format": "int64" if wide else "int32",
        "minimum": 0,
        "maximum": maximum,
        "description": description,
    }


def _conditions() -> Schema:
    properties = {
        "type": _text("Name of the condition.", 316),
        "status": _text("True, False or Unknown.", 7) | {"enum": ["True", "False", "Unknown"]},
        "reason": _text("Why, as one word.", LONGEST_REASON)
        | {"minLength": 1, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
        "message": _text("Why, with the remedy.", LONGEST_MESSAGE),
        "lastTransitionTime": _text("When `status` last changed.", 64) | {"format": "date-time"},
        "observedGeneration": _count(
            "Generation of the spec that the condition describes.", maximum=LARGEST
        ),
    }
    return {
        "type": "array",
        "maxItems": 16,
        "description": "The state of the gateway and of what it needs.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": properties,
        },
    }


def _inventory() -> Schema:
    properties = {"kind": _text("Kind of the object.", 63), "name": _text("Its name.", 253)}
    return {
        "type": "array",
        "maxItems": 32,
        "description": "The objects that were made for this policy.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["kind", "name"],
        "items": {"type": "object", "required": ["kind", "name"], "properties": properties},
    }


def main() -> None:
    """Print the definition as YAML."""
    sys.stdout.write(yaml_text(build_crd()))


if __name__ == "__main__":
    main()
