"""A safety margin for worlds in which the prediction is the truth, or is not to be doubted."""

from __future__ import annotations

from punctual_admission.margin import Margin


class NoMargin(Margin):
    """A factor of 1 that learns nothing."""

    def __init__(self) -> None:
        """Start and stay at 1."""
        super().__init__(0.99)
        self._factor = 1.0

    def observe(self, actual_seconds: float, predicted_seconds: float) -> None:
        """Learn nothing."""

    def set_confidence(self, confidence: float) -> None:
        """Stay at 1."""
