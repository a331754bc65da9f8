"""How long the need for model pods must have been lower before the autoscaler gives one up.

A pod that is given up has to be started again at the next peak, and for one start D its work is
refused. To keep it costs its own time instead. Both cost the same after a window of c * 0.7 * D,
where c is what a GPU-second of refused work is worth in GPU-seconds of an idle pod, and 0.7 the
utilisation aimed at; a window of that length never costs more than twice what would have been best
(the rule of buying skis once their rent has come to their price). With c = 7 it is five starts.
"""

from __future__ import annotations

import math

STARTS = 5
STEP_SECONDS = 60
SHORTEST_SECONDS = 300
LONGEST_SECONDS = 3600
"""Bounds of the window; the longest is that of the autoscaler's own API."""


def choose_window(start: float | None, present: int | None) -> int:
    """Seconds of scale-down stabilisation for a start in seconds; `present` is what is set now.

    The present one stays while it is long enough and not twice as long as needed, or where no start
    is known: starts vary a little, and each change of it is a change of the object.
    """
    if start is None:
        return SHORTEST_SECONDS if present is None else present
    steps = math.ceil(STARTS * start / STEP_SECONDS)
    needed = min(max(steps * STEP_SECONDS, SHORTEST_SECONDS), LONGEST_SECONDS)
    if present is not None and needed <= present <= 2 * needed:
        return present
    return needed
