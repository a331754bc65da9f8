"""The autoscaling loop on a control plane without nodes: pods are virtual, time is shortened."""

from loopstand.clock import ACCELERATION, quick, usual
from loopstand.loop import Loop, Stand, running

__all__ = ["ACCELERATION", "Loop", "Stand", "quick", "running", "usual"]
