"""The policies that an experiment compares, written as AdmissionPolicy files for the gateway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ModeUnderTest:
    """One row of a comparison: its name in tables, the policy's mode, and whether it displaces."""

    name: str
    mode: str
    displacement: str = "Never"

    @property
    def slug(self) -> str:
        """Return the name in lower case with dashes, for file names."""
        return self.name.lower().replace(" + ", "-").replace(" ", "-")


UNLIMITED = ModeUnderTest("Unlimited", "Unlimited")
BOUNDED = ModeUnderTest("Bounded", "Bounded")
DEADLINE = ModeUnderTest("Deadline", "Deadline")
PREDICTIVE = ModeUnderTest("Predictive", "Predictive")
DISPLACING = ModeUnderTest("Predictive + displacement", "Predictive", displacement="Longest")
ALL_MODES = (UNLIMITED, BOUNDED, DEADLINE, PREDICTIVE, DISPLACING)


def rotate_modes(modes: tuple[ModeUnderTest, ...], seed: int) -> tuple[ModeUnderTest, ...]:
    """Return the modes with the start moved by the seed, so that no mode always runs first."""
    start = seed % len(modes)
    return modes[start:] + modes[:start]


def build_policy(
    mode: ModeUnderTest,
    *,
    model: str = "lab",
    deadline_ms: int = 2000,
    queue_limit: int = 8,
    overdue: str = "Finish",
) -> dict[str, Any]:
    """Build the policy object of one mode.

    Running work past its deadline is finished by default, so that late answers are seen as late.
    """
    return {
        "apiVersion": "punctual.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": mode.slug, "namespace": "default", "generation": 1},
        "spec": {
            "model": model,
            "mode": mode.mode,
            "deadline": {"defaultMilliseconds": deadline_ms, "maximumMilliseconds": 60_000},
            "queue": {
                "order": "EarliestDeadlineFirst",
                "maximumRequests": queue_limit,
                "displacement": mode.displacement,
            },
            "overdue": overdue,
        },
    }


def write_policy(path: Path, policy: dict[str, Any]) -> Path:
    """Write a policy file in one step (a reader never sees half of it) and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".tmp")
    draft.write_text(yaml.safe_dump(policy, sort_keys=False), encoding="utf-8")
    draft.replace(path)
    return path
