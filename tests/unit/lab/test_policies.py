"""The policies of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from punctual_lab.policies import (
    ALL_MODES,
    DISPLACING,
    ModeUnderTest,
    build_policy,
    rotate_modes,
    write_policy,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("mode", ALL_MODES, ids=lambda mode: mode.slug)
def test_a_policy_file_holds_its_mode(tmp_path: Path, mode: ModeUnderTest) -> None:
    """The file read back is the policy built, with the mode's own fields."""
    policy = build_policy(mode, deadline_ms=1500)
    path = write_policy(tmp_path / "deep" / "policy.yaml", policy)
    assert yaml.safe_load(path.read_text()) == policy
    assert policy["spec"]["mode"] == mode.mode
    assert policy["spec"]["queue"]["displacement"] == mode.displacement
    assert policy["spec"]["deadline"]["defaultMilliseconds"] == 1500
    assert list(path.parent.iterdir()) == [path]


def test_rotation_keeps_the_modes_and_moves_the_start() -> None:
    """Each seed starts with another mode; all of them run."""
    starts = {rotate_modes(ALL_MODES, seed)[0] for seed in range(len(ALL_MODES))}
    assert starts == set(ALL_MODES)
    assert set(rotate_modes(ALL_MODES, 7)) == set(ALL_MODES)


def test_slugs_are_file_names() -> None:
    """A mode's slug is lower case with dashes."""
    assert DISPLACING.slug == "predictive-displacement"
