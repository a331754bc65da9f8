"""The OpenAPI document."""

from __future__ import annotations

import orjson
from openapi_spec_validator import validate

from punctual_gateway.openapi import build_document, document


def test_document_is_valid() -> None:
    validate(build_document())
    assert orjson.loads(document())["openapi"] == "3.1.0"


def test_everything_that_is_added_is_optional() -> None:
    operation = build_document()["paths"]["/v1/completions"]["post"]
    assert not any(parameter.get("required") for parameter in operation["parameters"])
    schema = build_document()["components"]["schemas"]["Completion"]
    assert schema["required"] == ["prompt"]
