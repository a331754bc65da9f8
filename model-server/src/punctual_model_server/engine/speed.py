"""How fast the engine runs compared with its calibration."""

from __future__ import annotations

from typing import Final

WEIGHT: Final = 0.2
WINDOW_SECONDS: Final = 0.2
_LOWEST, _HIGHEST = 0.02, 50.0


class SpeedRatio:
    """Running ratio of actual to calibrated busy time (EWMA over windows of calibrated work).

    A single step is too noisy a sample on a shared machine, so actual and calibrated time are
    summed until the window holds `WINDOW_SECONDS` of calibrated work; each full window is one
    sample of weight `WEIGHT`.
    """

    def __init__(self, value: float = 1.0) -> None:
        self.value = value
        self._actual = 0.0
        self._calibrated = 0.0

    def observe(self, actual: float, calibrated: float) -> None:
        """Take `actual` seconds of work that the calibration puts at `calibrated` seconds."""
        self._actual += actual
        self._calibrated += calibrated
        if self._calibrated >= WINDOW_SECONDS:
            sample = min(max(self._actual / self._calibrated, _LOWEST), _HIGHEST)
            self.value += WEIGHT * (sample - self.value)
            self._actual = self._calibrated = 0.0
