"""The API reference, docs/api.md: every field of the definition, with its type, bounds and rules.

All of it is the definition's own; what the words of an enumeration mean stands in the source below
each of them.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from punctual_admission import policy
from punctual_operator import sections
from punctual_operator.conditions import ConditionType
from punctual_operator.crd import PRINTER_COLUMNS, object_schema

Schema = dict[str, Any]

HEAD = """\
# API reference

<!-- Made from the definition by `make chart`. -->

`AdmissionPolicy` (`punctual.dev/v1alpha1`, namespaced, short name `ap`, category `punctual`): an
admission gateway in front of a pool of model pods. The definition is
[manifests/crd.yaml](../manifests/crd.yaml); [concepts.md](concepts.md) explains what the fields
decide, [manifests/samples](../manifests/samples) has whole policies.

```yaml
apiVersion: punctual.dev/v1alpha1
kind: AdmissionPolicy
metadata:
  name: gpt2                        # its gateway is called gpt2-gateway
spec:
  model: gpt2
  backend: {service: gpt2}          # a headless Service in the same namespace
  deadline: {defaultMilliseconds: 2000}
```

Numbers are integers with the unit in the name. A field that is left out has its default, also
within a section that is given in part. The API server refuses what is out of bounds or against a
rule, naming the field; a gateway without a cluster (`--policy FILE`) checks the same. A changed
policy is taken over by running gateways without a restart, except for the section `gateway`.
"""


def reference_text() -> str:
    """The page."""
    schema = object_schema()
    spec = schema["properties"]["spec"]
    lines = [HEAD, "## metadata", "", *_rules(schema), ""]
    lines += _section("spec", spec)
    for name, field in spec["properties"].items():
        lines += _nested(f"spec.{name}", field)
    lines += _status(schema["properties"]["status"])
    lines += ["## Columns of `kubectl get`", "", *_columns(), ""]
    return "\n".join(lines).rstrip() + "\n"


def _nested(path: str, field: Schema) -> Iterator[str]:
    """Sections below a field, each before those below it."""
    inner = field.get("items", field)
    if "properties" not in inner:
        return
    many = "[]" if "items" in field else ""
    yield from _section(f"{path}{many}", inner | {"description": field["description"]})
    for name, child in inner["properties"].items():
        yield from _nested(f"{path}{many}.{name}", child)


def _section(path: str, schema: Schema) -> Iterator[str]:
    """One heading with the table of its fields."""
    yield from (f"## {path}", "", schema["description"], "")
    yield from ("| field | type | default | |", "|---|---|---|---|")
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        yield _row(path, name, field, required=name in required)
    yield ""
    yield from _words(schema)
    if rules := list(_rules(schema)):
        yield from (*rules, "")


def _row(path: str, name: str, field: Schema, *, required: bool) -> str:
    kind = _type(field)
    if "properties" in field.get("items", field):
        anchor = f"{path}{name}".replace(".", "").replace("[]", "").lower()
        many = "list of " if "items" in field else ""
        kind = f"{many}[section](#{anchor})"
    default = _default(field, required=required, is_section=kind.endswith(")"))
    return f"| `{name}` | {kind} | {default} | {field['description'].replace('|', chr(92) + '|')} |"


def _type(field: Schema) -> str:
    """The type with its bounds, in words."""
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field["type"] == "integer":
        return f"{field['minimum']:,} to {field['maximum']:,}" if "maximum" in field else "integer"
    if field["type"] == "array":
        return f"up to {field['maxItems']} of: {_type(field['items'])}"
    if field["type"] == "string":
        pattern = f", `{field['pattern']}`".replace("|", "\\|") if "pattern" in field else ""
        return f"text, up to {field['maxLength']:,} characters{pattern}"
    return str(field["type"])


def _default(field: Schema, *, required: bool, is_section: bool) -> str:
    if required:
        return "**required**"
    if is_section:
        return "its defaults" if "default" in field else "absent"
    if "default" not in field:
        return "absent"
    return f"`{json.dumps(field['default'])}`"


def _rules(schema: Schema) -> Iterator[str]:
    """What spans fields, as the API server says it."""
    found = schema.get("x-kubernetes-validations", ())
    if found:
        yield from ("Rules:", "")
        yield from (f"- {rule['message']}" for rule in found)


def _words(schema: Schema) -> Iterator[str]:
    """What the words of the enumerations mean."""
    for name, field in schema["properties"].items():
        meanings = MEANINGS.get(tuple(field.get("enum", ())), {})
        if meanings:
            yield from (f"`{name}`:", "")
            yield from (f"- `{word}`: {text}" for word, text in meanings.items())
            yield ""


def _status(status: Schema) -> Iterator[str]:
    yield from ("## status", "", status["description"], "")
    yield from ("| field | type | |", "|---|---|---|")
    for name, field in status["properties"].items():
        kind = "list" if "items" in field else str(field["type"])
        yield f"| `{name}` | {kind} | {field['description']} |"
    yield from ("", "Conditions:", "")
    for kind in ConditionType:
        yield f"- `{kind}`"
    yield from (
        "",
        "[operations.md](operations.md#when-a-policy-is-not-ready) says what each tells,",
        "[operator/README.md](../operator/README.md#conditions) lists the reasons.",
        "",
    )


def _columns() -> Iterator[str]:
    yield from ("| column | from |", "|---|---|")
    for name, _, path in PRINTER_COLUMNS:
        yield f"| {name.upper()} | `{path}` |"


def read_meanings(*modules: ModuleType) -> dict[tuple[str, ...], dict[str, str]]:
    """The text below each member of each enumeration, by the enumeration's values."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for module in modules:
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ClassDef):
                members = dict(_members(node))
                if members and all(members.values()):
                    found.setdefault(tuple(members), members)
    return found


def _members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for one, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant):
            yield str(one.value.value), _text(after)


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return inspect.cleandoc(str(node.value.value)).replace("\n", " ")
    return ""


MEANINGS = read_meanings(policy, sections)
