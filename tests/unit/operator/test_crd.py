"""The custom resource definition: in step with the declarations, and by the API conventions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from punctual_operator.crd import PRINTER_COLUMNS, build_crd, object_schema
from punctual_operator.yaml_text import yaml_text

ROOT = Path(__file__).parents[3]
Node = tuple[str, dict[str, Any]]


def walk(schema: dict[str, Any], path: str = "") -> Iterator[Node]:
    """Each schema in a schema, with its path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from walk(field, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")


FIELDS = [
    (path, schema)
    for path, schema in walk(object_schema())
    if path.startswith((".spec", ".status"))
]


def test_manifest_is_what_the_declarations_give() -> None:
    path = ROOT / "manifests" / "crd.yaml"
    assert path.read_text() == yaml_text(build_crd()), (
        "write it anew: python -m punctual_operator.crd > manifests/crd.yaml"
    )


def test_field_is_bounded() -> None:
    for path, schema in FIELDS:
        bounds = {
            "integer": {"minimum", "maximum", "format"},
            "string": {"maxLength"} if "enum" not in schema else set(),
            "array": {"maxItems", "items", "x-kubernetes-list-type"},
            "object": {"properties"},
        }
        assert bounds[schema["type"]] <= set(schema), path


def test_field_has_a_description_and_a_fitting_type() -> None:
    for path, schema in FIELDS:
        assert path.endswith("[]") or schema.get("description"), path
        assert schema["type"] in {"object", "array", "string", "integer"}, path
        for name in ("nullable", "x-kubernetes-preserve-unknown-fields", "additionalProperties"):
            assert name not in schema, path


def test_defaults_are_for_optional_fields_and_complete() -> None:
    for path, schema in FIELDS:
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            assert "default" not in properties[name], f"{path}.{name}"
        if "default" in schema and schema["type"] == "object":
            nested = {name: one["default"] for name, one in properties.items() if "default" in one}
            assert schema["default"] == nested, path


def test_list_of_objects_has_a_key() -> None:
    for path, schema in FIELDS:
        if schema["type"] == "array" and schema["items"]["type"] == "object":
            keys = schema["x-kubernetes-list-map-keys"]
            assert schema["x-kubernetes-list-type"] == "map", path
            assert set(keys) <= set(schema["items"]["required"]), path


def test_words_are_camel_case_and_units_are_in_names() -> None:
    for path, schema in FIELDS:
        for word in schema.get("enum", ()):
            assert word[0].isupper(), path
            assert word.isalnum(), path
        name = path.rsplit(".", 1)[-1]
        assert not name.lower().endswith(("duration", "timeout", "time")) or "Time" in name, path


def test_rules_say_what_must_be() -> None:
    for path, schema in FIELDS:
        for rule in schema.get("x-kubernetes-validations", ()):
            assert "must" in rule["message"], path
            assert rule["message"].startswith("`"), path


def test_status_is_a_subresource_with_conditions_by_type() -> None:
    version = build_crd()["spec"]["versions"][0]
    assert version["subresources"] == {"status": {}}
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_columns_are_the_documented_ones() -> None:
    names = [name for name, _, _ in PRINTER_COLUMNS]
    assert names == ["Mode", "Deadline", "Ready", "Gateways", "Backends", "Reason", "Age"]
