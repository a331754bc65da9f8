"""How kopf is set up, and what is said when the operator cannot start."""

from __future__ import annotations

import kopf
import pytest

from punctual_operator.api import ApiError
from punctual_operator.handlers import Operator, configure, start_failure
from punctual_operator.settings import Settings


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "manifests/crd.yaml"), (403, "manifests/rbac.yaml"), (0, "must be reachable")],
)
def test_failure_at_the_start_names_the_remedy(status: int, words: str) -> None:
    assert words in start_failure(ApiError(status, "no"))


def test_no_handler_needs_a_finalizer_or_an_annotation() -> None:
    registry = Operator(Settings()).registry
    assert not registry._changing._handlers
    assert not registry._spawning._handlers
    assert registry._watching._handlers


def test_watches_are_bounded_and_selective() -> None:
    settings = kopf.OperatorSettings()
    configure(settings, Settings(inactivity=33.0))
    assert settings.watching.inactivity_timeout == 33.0
    assert settings.watching.server_timeout is not None
    assert settings.scanning.disabled
    assert not settings.posting.enabled
    assert len(list(settings.watching.label_selectors)) >= 10
