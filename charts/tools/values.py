"""The chart's values: read with their comments from values.yaml, and described by a JSON schema.

A value's comment is the line `# -- ...` above its key; a key without one is a section.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

KEY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z0-9]+):")
Schema = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """One documented value."""

    path: tuple[str, ...]
    text: str
    default: Any

    @property
    def name(self) -> str:
        """The path as `--set` takes it."""
        return ".".join(self.path)


def read_values(source: str) -> list[Value]:
    """Every documented value, in the order of the file; raises ValueError on one without text."""
    defaults = yaml.safe_load(source)
    return list(_values(source.splitlines(), defaults))


def _values(lines: list[str], defaults: Schema) -> Iterator[Value]:
    path: list[tuple[int, str]] = []
    text, inside = "", -1
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.lstrip().startswith("# -- "):
            text = line.lstrip().removeprefix("# -- ")
        if not (found := KEY.match(line)) or (0 <= inside < indent):
            continue
        inside = -1
        path = [*(part for part in path if part[0] < indent), (indent, found["key"])]
        names = tuple(key for _, key in path)
        if text:
            yield Value(names, text, _look_up(defaults, names))
            text, inside = "", indent
        elif not isinstance(_look_up(defaults, names), dict):
            raise ValueError(f"values.yaml: {'.'.join(names)} must have a comment `# -- ...`")


def _look_up(tree: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def values_table(values: list[Value]) -> str:
    """The values as a Markdown table."""
    rows = ["| value | default | what |", "|---|---|---|"]
    for value in values:
        default = json.dumps(value.default)
        rows.append(f"| `{value.name}` | `{default}` | {value.text.replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n"


LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAME = {"type": "string", "maxLength": 63, "pattern": f"^({LABEL})?$"}
OBJECT_NAME = {
    "type": "string",
    "maxLength": 253,
    "pattern": f"^({LABEL}(\\.{LABEL})*)?$",
}
"""The name of an object of most kinds: labels with dots between them."""
REPOSITORY = {"type": "string", "minLength": 1, "pattern": "^[a-zA-Z0-9][-a-zA-Z0-9._:/]*$"}
TAG = {"type": "string", "maxLength": 128, "pattern": "^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$"}
DIGEST = {"type": "string", "pattern": "^(sha256:[a-f0-9]{64})?$"}
DURATION = {"type": "string", "pattern": "^[1-9][0-9]*(ms|s|m|h)$"}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
OWN_LABELS = [
    *(
        f"app.kubernetes.io/{name}"
        for name in ("name", "instance", "part-of", "component", "version", "managed-by")
    ),
    "helm.sh/chart",
]
LABELS = TEXTS | {"properties": dict.fromkeys(OWN_LABELS, False)}
"""Labels beside the chart's own, by which its objects are selected."""
OBJECTS = {"type": "array", "items": {"type": "object"}}
SECRETS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {"name": OBJECT_NAME | {"minLength": 1}},
    },
}

FIELDS: dict[str, Schema] = {
    "nameOverride": NAME,
    "fullnameOverride": NAME,
    "commonLabels": LABELS,
    "commonAnnotations": TEXTS,
    "imagePullSecrets": SECRETS,
    "gateway.imagePullSecrets": SECRETS,
    "namespaces": {"type": "array", "uniqueItems": True, "items": NAME | {"minLength": 1}},
    "serviceAccount.name": OBJECT_NAME,
    "serviceAccount.annotations": TEXTS,
    "priorityClass.name": OBJECT_NAME,
    "priorityClass.value": {"type": "integer", "minimum": -2147483648, "maximum": 1000000000},
    "operator.image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "operator.logLevel": {"enum": ["DEBUG", "INFO", "WARNING"]},
    "operator.logFormat": {"enum": ["json", "plain"]},
    "metricsAdapter.replicas": {"type": "integer", "minimum": 1, "maximum": 16},
    "metricsAdapter.logLevel": {"enum": ["DEBUG", "INFO", "WARNING"]},
    "metricsAdapter.priorityClassName": OBJECT_NAME,
    "metricsAdapter.nodeSelector": TEXTS,
    "operator.workers": {"type": "integer", "minimum": 1, "maximum": 256},
    "operator.resyncSeconds": {"type": "number", "minimum": 0.05, "maximum": 86400},
    "operator.extraArgs": {"type": "array", "items": {"type": "string"}},
    "operator.podLabels": LABELS,
    "operator.podAnnotations": TEXTS,
    "operator.nodeSelector": TEXTS,
    "operator.priorityClassName": OBJECT_NAME,
    "operator.terminationGracePeriodSeconds": {"type": "integer", "minimum": 1, "maximum": 3600},
    "operator.networkPolicy.apiServerPorts": {
        "type": "array",
        "minItems": 1,
        "items": {"type": "integer", "minimum": 1, "maximum": 65535},
    },
}
"""What is allowed in a value, where its type alone does not say it."""
for _image in ("gateway.image", "operator.image"):
    FIELDS |= {f"{_image}.repository": REPOSITORY, f"{_image}.tag": TAG, f"{_image}.digest": DIGEST}
FIELDS |= {
    "alerts.labels": TEXTS,
    "alerts.runbookUrl": {"type": "string", "minLength": 1, "pattern": "^[^\\s#]+$"},
    "dashboard.labels": TEXTS,
    "dashboard.annotations": TEXTS,
}
for _monitor in (
    "gateway.podMonitor",
    "operator.metrics.serviceMonitor",
    "metricsAdapter.serviceMonitor",
):
    FIELDS |= {f"{_monitor}.interval": DURATION, f"{_monitor}.labels": TEXTS}


def build_schema(values: list[Value]) -> Schema:
    """The JSON schema: all that values.yaml names, and nothing else."""
    root: Schema = {"$schema": "https://json-schema.org/draft-07/schema#"} | _section()
    # Helm hands these to every chart
    root["properties"]["global"] = {"type": "object"}
    for value in values:
        section: Schema = root
        for key in value.path[:-1]:
            section = section["properties"].setdefault(key, _section())
        allowed = FIELDS.get(value.name) or _by_default(value.default)
        section["properties"][value.path[-1]] = {"description": value.text} | allowed
    return root


def _section() -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def _by_default(default: Any) -> Schema:
    if isinstance(default, bool):
        return {"type": "boolean"}
    if isinstance(default, list):
        return OBJECTS
    if isinstance(default, dict):
        return {"type": "object"}
    raise ValueError(f"the schema of a value with the default {default!r} must be named in FIELDS")
