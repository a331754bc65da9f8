"""Label selectors, as the API server takes them in a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Labels = Mapping[str, str]
Requirement = Callable[[Labels], bool]

KEY = r"(?:[a-z0-9.-]+/)?[A-Za-z0-9][-A-Za-z0-9_.]*"
VALUE = r"[-A-Za-z0-9_.]*"
_EQUAL = re.compile(rf"({KEY})\s*(==|=|!=)\s*({VALUE})")
_SET = re.compile(rf"({KEY})\s+(in|notin)\s+\(([^()]*)\)")
_EXISTS = re.compile(rf"(!?)\s*({KEY})")


class SelectorError(ValueError):
    """A selector that cannot be read."""


def parse_selector(text: str) -> Callable[[Labels], bool]:
    """A test of labels; raises SelectorError."""
    requirements = [_requirement(part.strip()) for part in _split(text) if part.strip()]
    return lambda labels: all(holds(labels) for holds in requirements)


def _split(text: str) -> list[str]:
    """At the commas that stand outside of parentheses."""
    return re.split(r",(?![^()]*\))", text)


def _requirement(part: str) -> Requirement:
    if (found := _EQUAL.fullmatch(part)) is not None:
        key, sign, value = found.groups()
        wanted = sign != "!="
        return lambda labels: (labels.get(key) == value) is wanted
    if (found := _SET.fullmatch(part)) is not None:
        key, word, listed = found.groups()
        values = {value.strip() for value in listed.split(",")}
        if not all(re.fullmatch(VALUE, value) for value in values):
            raise SelectorError(f"values of a selector must be label values, got {listed!r}")
        return lambda labels: (labels.get(key) in values) is (word == "in")
    if (found := _EXISTS.fullmatch(part)) is not None:
        absent, key = found.groups()
        return lambda labels: (key in labels) is not bool(absent)
    raise SelectorError(f"a selector must be requirements on labels, got {part[:80]!r}")
