"""The gateway's README names everything that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from punctual_gateway import errors, openapi, settings
from punctual_gateway.metrics import Metrics
from punctual_gateway.upstream import Fault

SOURCES = Path(settings.__file__).parent
README = (SOURCES.parents[1] / "README.md").read_text()


def test_every_flag_is_explained() -> None:
    flags = set(re.findall(r'add\("(--[a-z-]+)"', (SOURCES / "settings.py").read_text()))
    assert len(flags) > 10
    assert [flag for flag in sorted(flags) if f"{flag}" not in README] == []


def test_every_code_is_explained() -> None:
    raised = "\n".join(path.read_text() for path in SOURCES.glob("*.py"))
    codes = {reason.value for reason in errors.REASONS} | {fault.value for fault in Fault}
    codes |= set(re.findall(r'RequestError\([^)]*?code="([a-z_]+)"', raised, re.DOTALL))
    assert [code for code in sorted(codes) if f"`{code}`" not in README] == []


@pytest.mark.parametrize("name", sorted(openapi.ANSWER_HEADERS | openapi.REFUSAL_HEADERS))
def test_every_header_is_explained(name: str) -> None:
    assert name in README


def test_every_metric_is_explained() -> None:
    text = "\n".join((SOURCES / name).read_text() for name in ("metrics.py", "stats.py"))
    names = set(re.findall(r'"(punctual_[a-z_]+)"', text))
    names |= {family.name for family in Metrics().registry.collect()}
    assert [name for name in sorted(names) if name not in README] == []
