"""Declared fields: one declaration gives the default, the validation and the OpenAPI schema.

A policy section is a frozen dataclass whose fields are made by the functions below. `build` turns
a mapping with camelCase keys (as `kubectl` writes them) into such a value and names the field,
the value and what is allowed when it cannot. `schema` renders the same declaration as a
structural OpenAPI v3 schema, so the custom resource definition and the gateway cannot disagree.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

_T = TypeVar("_T")
_META = "punctual"
_ITEMS = {"sections": "section", "integers": "integer", "texts": "text"}
"""Kinds of lists, and the kind of their items."""


class PolicyError(ValueError):
    """An invalid policy; `problems` holds one sentence for each fault, with its field path."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclasses.dataclass(frozen=True, slots=True)
class Declared:
    """What a field allows; `None` for a bound means that the bound does not apply."""

    kind: str
    description: str
    minimum: int | None = None
    maximum: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    choices: type[StrEnum] | None = None
    section: type[Any] | None = None
    max_items: int | None = None
    optional: bool = False
    """Whether the field may be absent and then has no value at all."""
    required: bool = False
    list_key: str | None = None
    rules: tuple[tuple[str, str], ...] = ()
    """CEL rules over the field itself, each with its message."""


def _field(declared: Declared, default: object) -> Any:
    metadata = {_META: declared}
    if declared.required:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def integer(default: int, minimum: int, maximum: int, description: str) -> Any:
    """An integer within [minimum, maximum]; the unit is part of the field's name."""
    return _field(Declared("integer", description, minimum=minimum, maximum=maximum), default)


def optional_integer(minimum: int, maximum: int, description: str) -> Any:
    """An integer within [minimum, maximum], or None where it is absent."""
    declared = Declared("integer", description, minimum=minimum, maximum=maximum, optional=True)
    return _field(declared, None)


def choice(default: StrEnum, description: str) -> Any:
    """One word of the enumeration that `default` belongs to."""
    return _field(Declared("choice", description, choices=type(default)), default)


def text(default: str, max_length: int, description: str, pattern: str | None = None) -> Any:
    """A string of at most `max_length` characters that matches `pattern`, or the default."""
    declared = Declared("text", description, max_length=max_length, pattern=pattern)
    return _field(declared, default)


def required_text(max_length: int, description: str, pattern: str | None = None) -> Any:
    """A string that has to be given."""
    declared = Declared("text", description, max_length=max_length, pattern=pattern, required=True)
    return _field(declared, None)


def integers(max_items: int, minimum: int, maximum: int, description: str) -> Any:
    """A list of integers, each within [minimum, maximum]; empty where it is absent."""
    declared = Declared(
        "integers", description, minimum=minimum, maximum=maximum, max_items=max_items
    )
    return _field(declared, ())


def texts(max_items: int, max_length: int, description: str) -> Any:
    """A list of strings of at most `max_length` characters each; empty where it is absent."""
    declared = Declared("texts", description, max_length=max_length, max_items=max_items)
    return _field(declared, ())


def section(kind: type[Any], description: str) -> Any:
    """A nested section; absent means all of its defaults."""
    declared = Declared("section", description, section=kind)
    return dataclasses.field(default_factory=kind, metadata={_META: declared})


def optional_section(kind: type[Any], description: str) -> Any:
    """A nested section, or None where it is absent (the feature is off)."""
    return _field(Declared("section", description, section=kind, optional=True), None)


def sections(kind: type[Any], key: str, max_items: int, description: str) -> Any:
    """A list of named sections, unique by `key`."""
    declared = Declared("sections", description, section=kind, max_items=max_items, list_key=key)
    return _field(declared, ())


def camel(name: str) -> str:
    """`default_milliseconds` as `defaultMilliseconds`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def declared_fields(kind: type[Any]) -> dict[str, tuple[str, Declared, dataclasses.Field[Any]]]:
    """The declared fields of a section by camelCase name: attribute name, declaration, field."""
    return {
        camel(field.name): (field.name, field.metadata[_META], field)
        for field in dataclasses.fields(kind)
        if _META in field.metadata
    }


def build(
    kind: type[_T], given: object, path: str = "", ignored: frozenset[str] = frozenset()
) -> _T:
    """Build a section from a mapping; raises PolicyError that lists every fault.

    `ignored` names keys of the outermost mapping that belong to somebody else.
    """
    problems: list[str] = []
    value = _build(kind, given, path, problems, ignored)
    if problems:
        raise PolicyError(problems)
    return value  # type: ignore[no-any-return]


def _build(
    kind: type[Any],
    given: object,
    path: str,
    problems: list[str],
    ignored: frozenset[str] = frozenset(),
) -> Any:
    if not isinstance(given, Mapping):
        problems.append(f"{path or 'spec'} must be an object, got {_shown(given)}")
        return None
    known = declared_fields(kind)
    problems.extend(
        f"{_join(path, str(key))} is not a field; must be one of {', '.join(sorted(known))}"
        for key in given
        if key not in known and key not in ignored
    )
    values: dict[str, Any] = {}
    for name, (attribute, declared, _) in known.items():
        if given.get(name) is not None:
            values[attribute] = _value(declared, given[name], _join(path, name), problems)
        elif declared.required:
            problems.append(f"{_join(path, name)} must be given")
            values[attribute] = None
    return None if problems else kind(**values)


def _value(declared: Declared, given: object, path: str, problems: list[str]) -> Any:
    if declared.kind == "section":
        assert declared.section is not None  # noqa: S101  # declarations are ours
        return _build(declared.section, given, path, problems)
    if declared.kind in _ITEMS:
        return _items(declared, given, path, problems)
    return _scalar(declared, given, path, problems)


def _items(declared: Declared, given: object, path: str, problems: list[str]) -> Any:
    limit = declared.max_items or 0
    if not isinstance(given, list | tuple) or len(given) > limit:
        problems.append(f"{path} must be a list of at most {limit} items, got {_shown(given)}")
        return ()
    each = dataclasses.replace(declared, kind=_ITEMS[declared.kind])
    built = tuple(
        _value(each, item, f"{path}[{index}]", problems) for index, item in enumerate(given)
    )
    if declared.list_key is not None and not problems:
        names = [getattr(item, declared.list_key) for item in built]
        problems.extend(
            f"{path} must have unique names, got '{name}' twice"
            for name in sorted({name for name in names if names.count(name) > 1})
        )
    return built


def _scalar(declared: Declared, given: object, path: str, problems: list[str]) -> Any:
    check = {"integer": _integer, "choice": _choice, "text": _text}[declared.kind]
    return check(declared, given, path, problems)


def _integer(declared: Declared, given: object, path: str, problems: list[str]) -> int:
    low, high = declared.minimum or 0, declared.maximum or 0
    if isinstance(given, int) and not isinstance(given, bool) and low <= given <= high:
        return given
    problems.append(f"{path} must be an integer from {low} to {high}, got {_shown(given)}")
    return low


def _choice(declared: Declared, given: object, path: str, problems: list[str]) -> Any:
    words = [str(member) for member in declared.choices or ()]
    if given in words and declared.choices is not None:
        return declared.choices(given)
    problems.append(f"{path} must be one of {', '.join(words)}, got {_shown(given)}")
    return None


def _text(declared: Declared, given: object, path: str, problems: list[str]) -> str:
    limit = declared.max_length or 0
    if not isinstance(given, str) or len(given) > limit:
        problems.append(
            f"{path} must be a string of at most {limit} characters, got {_shown(given)}"
        )
        return ""
    if declared.pattern is not None and re.fullmatch(declared.pattern, given) is None:
        problems.append(f"{path} must match {declared.pattern}, got {_shown(given)}")
    return given


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def schema(kind: type[Any]) -> dict[str, Any]:
    """The structural OpenAPI v3 schema of a section, defaults spelled out at every level."""
    properties, required = {}, []
    for name, (_, declared, field) in declared_fields(kind).items():
        properties[name] = _schema_of(declared, field)
        if declared.required:
            required.append(name)
    rendered: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        rendered["required"] = required
    rules = getattr(kind, "RULES", ())
    if rules:
        rendered["x-kubernetes-validations"] = [
            {"rule": rule, "message": message} for rule, message in rules
        ]
    return rendered


def _schema_of(declared: Declared, field: dataclasses.Field[Any]) -> dict[str, Any]:
    rendered = {
        "section": _section_schema,
        "sections": _list_schema,
        "integers": _list_schema,
        "texts": _list_schema,
        "integer": _integer_schema,
        "choice": _choice_schema,
        "text": _text_schema,
    }[declared.kind](declared)
    rendered["description"] = declared.description
    if not declared.optional and not declared.required:
        default = default_of(declared, field)
        if default is not None:
            rendered["default"] = default
    return rendered


def default_of(declared: Declared, field: dataclasses.Field[Any]) -> Any:
    """The JSON default of a field; None where absence is the default."""
    if declared.kind == "section":
        assert declared.section is not None  # noqa: S101  # declarations are ours
        return dumped(declared.section())
    if declared.kind in _ITEMS:
        return None
    return str(field.default) if declared.kind == "choice" else field.default


def _section_schema(declared: Declared) -> dict[str, Any]:
    assert declared.section is not None  # noqa: S101  # declarations are ours
    return schema(declared.section)


def _list_schema(declared: Declared) -> dict[str, Any]:
    if declared.kind != "sections":
        items = _integer_schema(declared) if declared.kind == "integers" else _text_schema(declared)
        return {
            "type": "array",
            "maxItems": declared.max_items,
            "items": items,
            "x-kubernetes-list-type": "atomic",
        }
    return {
        "type": "array",
        "maxItems": declared.max_items,
        "items": _section_schema(declared),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [declared.list_key],
    }


def _integer_schema(declared: Declared) -> dict[str, Any]:
    wide = (declared.maximum or 0) > 2**31 - 1
    return {
        "type": "integer",
        "format": "int64" if wide else "int32",
        "minimum": declared.minimum,
        "maximum": declared.maximum,
    }


def _choice_schema(declared: Declared) -> dict[str, Any]:
    return {"type": "string", "enum": [str(member) for member in declared.choices or ()]}


def _text_schema(declared: Declared) -> dict[str, Any]:
    rendered: dict[str, Any] = {"type": "string", "maxLength": declared.max_length}
    if declared.pattern is not None:
        rendered["pattern"] = f"^(?:{declared.pattern})$"
    return rendered


def dumped(value: Any) -> dict[str, Any]:
    """A section as the JSON object it was built from, defaults included, absent fields left out."""
    rendered: dict[str, Any] = {}
    for name, (attribute, declared, _) in declared_fields(type(value)).items():
        given = getattr(value, attribute)
        if given is None or given == ():
            continue
        if declared.kind == "section":
            rendered[name] = dumped(given)
        elif declared.kind == "sections":
            rendered[name] = [dumped(item) for item in given]
        elif declared.kind in {"integers", "texts"}:
            rendered[name] = list(given)
        else:
            rendered[name] = str(given) if declared.kind == "choice" else given
    return rendered
