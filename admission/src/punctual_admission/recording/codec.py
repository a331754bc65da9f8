"""Values of this package as JSON and back: a checkpoint of everything that a ledger knows.

Numbers, texts, lists and so on become what JSON has for them or a list that begins with a mark;
frozen objects become `["v", "module:Class", {attribute: value}]`, others `["o", number, ...]`, and
`["r", number]` where the same object is met again. Reading makes objects of this package's own
classes alone and calls none of their code, so a log from elsewhere can do no harm.
"""

from __future__ import annotations

import importlib
import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

PACKAGE = "punctual_admission"
_MARKS: dict[type, str] = {list: "l", tuple: "t", deque: "d", set: "s"}
_KINDS: dict[str, Any] = {mark: kind for kind, mark in _MARKS.items()}
_MAPS: dict[type, str] = {dict: "m", OrderedDict: "om"}
_MAP_KINDS: dict[str, Any] = {mark: kind for kind, mark in _MAPS.items()}
_PLAIN = (bool, str, type(None))
_MUTABLE = SimpleNamespace(frozen=False)
_LARGEST = 2**53
"""Integers beyond it are written as text: not every reader of JSON keeps them."""


class CodecError(ValueError):
    """A value that cannot be written, or JSON that is none of this package's values."""


def encode(value: object) -> Any:
    """The value as JSON; raises CodecError for a kind of value that has no place in a ledger."""
    return _Encoder().encode(value)


def decode(given: Any) -> Any:
    """The value that `encode` wrote; raises CodecError."""
    try:
        return _Decoder().decode(given)
    except (AttributeError, ImportError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CodecError(f"a checkpoint must be what `encode` wrote: {error!r}") from error


class _Encoder:
    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []
        """The objects met, so that no other one gets the identity of one that has gone."""

    def encode(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is int:
            return value if -_LARGEST < value < _LARGEST else ["i", str(value)]
        if kind is float:
            return value if math.isfinite(value) else ["f", str(value)]
        if isinstance(value, StrEnum):
            return ["e", _name(kind), value.value]
        if kind in _MARKS:
            return [_MARKS[kind], *map(self.encode, value)]
        if kind in (dict, OrderedDict):
            return [
                _MAPS[kind],
                *([self.encode(key), self.encode(one)] for key, one in value.items()),
            ]
        if kind.__module__.partition(".")[0] != PACKAGE:
            raise CodecError(f"a ledger must hold values of {PACKAGE}, got {kind.__name__}")
        return self._encode_object(value)

    def _encode_object(self, value: object) -> Any:
        if getattr(type(value), "__dataclass_params__", _MUTABLE).frozen:
            return ["v", _name(type(value)), self._encode_attributes(value)]
        known = self._numbers.get(id(value))
        if known is not None:
            return ["r", known]
        number = self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        return ["o", number, _name(type(value)), self._encode_attributes(value)]

    def _encode_attributes(self, value: object) -> dict[str, Any]:
        caches = getattr(type(value), "CACHES", ())
        return {
            name: None if name in caches else self.encode(one) for name, one in attributes(value)
        }


class _Decoder:
    def __init__(self) -> None:
        self._objects: dict[int, object] = {}

    def decode(self, given: Any) -> Any:
        if not isinstance(given, list):
            return given
        mark, *rest = given
        if mark in _KINDS:
            return _KINDS[mark](map(self.decode, rest))
        if mark in _MAP_KINDS:
            return _MAP_KINDS[mark]((self.decode(key), self.decode(one)) for key, one in rest)
        if mark == "i":
            return int(rest[0])
        if mark == "f":
            return float(rest[0])
        if mark == "e":
            return _find(rest[0])(rest[1])
        if mark == "r":
            return self._objects[rest[0]]
        if mark == "v":
            return self._decode_object(object.__new__(_find(rest[0])), rest[1])
        if mark == "o":
            made = self._objects[rest[0]] = object.__new__(_find(rest[1]))
            return self._decode_object(made, rest[2])
        raise ValueError(f"the mark must be one that is written, got {mark!r}")

    def _decode_object(self, made: object, state: dict[str, Any]) -> object:
        for attribute, one in state.items():
            object.__setattr__(made, attribute, self.decode(one))
        return made


def attributes(value: object) -> Iterator[tuple[str, object]]:
    """What an object holds: a data class its fields, any other what is in its dictionary."""
    names: Iterable[str]
    names = [one.name for one in fields(value)] if is_dataclass(value) else vars(value)
    return ((name, getattr(value, name)) for name in names)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _find(name: str) -> Any:
    module, _, qualified = name.partition(":")
    if module.partition(".")[0] != PACKAGE:
        raise ValueError(f"a class must be one of {PACKAGE}, got {name!r}")
    found = getattr(importlib.import_module(module), qualified)
    if not isinstance(found, type) or found.__module__ != module:
        raise ValueError(f"{name!r} must be a class of that module")
    return found
