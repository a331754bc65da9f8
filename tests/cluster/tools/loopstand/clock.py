"""The clock of the loop, run `ACCELERATION` times as fast.

The autoscaling controller of the test's control plane looks every 2 s in place of every 15 s. All
other times of the loop are divided by the same 7.5: the start of a pod, the gateways' windows, the
adapter's questions, the autoscaler's windows and periods. So is the work of a request: one of
0.1 s of engine time stands for one of 0.76 s, and sums over a window are as noisy as they would be.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from punctual_gateway.settings import Settings

SYNC_SECONDS = 2.0
"""Between two looks of the autoscaling controller (testcluster.control_plane.QUICK_SCALING)."""
USUAL_SYNC_SECONDS = 15.0
ACCELERATION = USUAL_SYNC_SECONDS / SYNC_SECONDS
LOAD_WINDOW = round(Settings(Path()).load_window / ACCELERATION)
"""The gateways' `--load-window-seconds`, which has to be whole."""
UP = (("Pods", 4), ("Percent", 100))
UP_PERIOD = 15
"""Kubernetes' own rates, which it uses where an autoscaler names none."""


def quick(seconds: float) -> float:
    """So many seconds, shortened."""
    return seconds / ACCELERATION


def usual(seconds: float) -> float:
    """So many shortened seconds on the usual clock."""
    return seconds * ACCELERATION


def accelerate(behaviour: dict[str, Any]) -> dict[str, Any]:
    """The `behavior` of an autoscaler on the shortened clock; whole seconds, rounded up to 1."""
    common = {"policies": [{"type": t, "value": v, "periodSeconds": UP_PERIOD} for t, v in UP]}
    given = {"scaleDown": {}, **behaviour, "scaleUp": common | (behaviour.get("scaleUp") or {})}
    return {name: _accelerate_rules(rules) for name, rules in given.items()}


def _accelerate_rules(rules: dict[str, Any]) -> dict[str, Any]:
    found = dict(rules)
    if "stabilizationWindowSeconds" in rules:
        found["stabilizationWindowSeconds"] = round(quick(rules["stabilizationWindowSeconds"]))
    if "policies" in rules:
        found["policies"] = [
            rate | {"periodSeconds": max(round(quick(rate["periodSeconds"])), 1)}
            for rate in rules["policies"]
        ]
    return found
