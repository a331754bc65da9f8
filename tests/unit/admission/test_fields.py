"""Declared fields that the core itself does not use yet: named lists and optional sections."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from punctual_admission import fields
from punctual_admission.fields import PolicyError, build, dumped, schema


@dataclass(frozen=True)
class Tier:
    """An item of a named list."""

    name: str = fields.required_text(20, "Its name.")
    share_percent: int = fields.integer(0, 0, 100, "Its share.")


@dataclass(frozen=True)
class Document:
    """A document with one of each."""

    tiers: tuple[Tier, ...] = fields.sections(Tier, "name", 3, "Tiers.")
    extra: Tier | None = fields.optional_section(Tier, "An optional section.")
    words: tuple[str, ...] = fields.texts(2, 5, "Some words.")
    wide: int = fields.integer(1, 0, 2**40, "A wide integer.")


def test_a_list_of_sections_is_built_in_order() -> None:
    """With defaults in each item."""
    document = build(Document, {"tiers": [{"name": "a"}, {"name": "b", "sharePercent": 5}]})
    assert document.tiers == (Tier("a", 0), Tier("b", 5))
    assert dumped(document)["tiers"][1] == {"name": "b", "sharePercent": 5}


def test_names_in_a_list_are_unique() -> None:
    """The double one is told."""
    with pytest.raises(PolicyError, match=r"tiers must have unique names, got 'a' twice"):
        build(Document, {"tiers": [{"name": "a"}, {"name": "a"}]})


def test_a_fault_in_an_item_is_told_with_its_place() -> None:
    """The index is part of the path."""
    with pytest.raises(PolicyError, match=r"tiers\[1\].sharePercent must be an integer"):
        build(Document, {"tiers": [{"name": "a"}, {"name": "b", "sharePercent": 101}]})


def test_a_list_of_texts_is_bounded_in_number_and_length() -> None:
    """Built in order, written back, and rendered as Kubernetes wants it."""
    document = build(Document, {"words": ["a", "b"]})
    assert document.words == ("a", "b")
    assert dumped(document)["words"] == ["a", "b"]
    assert build(Document, {}).words == ()
    with pytest.raises(PolicyError, match=r"words\[1\] must be a string of at most 5 characters"):
        build(Document, {"words": ["a", "longer"]})
    with pytest.raises(PolicyError, match=r"words must be a list of at most 2 items"):
        build(Document, {"words": ["a", "b", "c"]})
    rendered = schema(Document)["properties"]["words"]
    assert rendered["items"] == {"type": "string", "maxLength": 5}
    assert rendered["x-kubernetes-list-type"] == "atomic"


def test_an_optional_section_is_none_where_it_is_absent() -> None:
    """And built where it is given."""
    assert build(Document, {}).extra is None
    assert build(Document, {"extra": {"name": "x"}}).extra == Tier("x", 0)
    assert dumped(Document(extra=Tier("x")))["extra"] == {"name": "x", "sharePercent": 0}


def test_lists_and_wide_integers_are_rendered_as_kubernetes_wants_them() -> None:
    """List maps by key, int64 beyond 32 bits, no default where absence is one."""
    properties = schema(Document)["properties"]
    assert properties["tiers"]["x-kubernetes-list-map-keys"] == ["name"]
    assert properties["wide"]["format"] == "int64"
    assert "default" not in properties["extra"]
    assert "default" not in properties["tiers"]
