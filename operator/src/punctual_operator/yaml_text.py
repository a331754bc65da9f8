"""YAML as this project writes it: keys in the order given, texts of several lines as blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    """A safe dumper that never uses anchors: people read and edit the result."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # the signature of PyYAML
        """Write a value that occurs twice out twice."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(value: Any) -> str:
    """One document."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=100)


def yaml_documents(values: Iterable[Any]) -> str:
    """Several documents, as `kubectl apply -f` reads them."""
    return "---\n".join(yaml_text(value) for value in values)
