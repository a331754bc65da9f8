"""What the decision reads of queue, pods and accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from punctual_admission.forecast import Forecast
    from punctual_admission.output_length import OutputLength
    from punctual_admission.pool import Pod
    from punctual_admission.ticket import Request, Ticket


class PoolView(Protocol):
    """What the decision reads; it changes none of it."""

    @property
    def pods(self) -> Sequence[Pod]:
        """Pods that can take work."""
        ...

    @property
    def queue(self) -> Sequence[Ticket]:
        """Waiting tickets, next first."""
        ...

    @property
    def queued_work(self) -> float:
        """GPU-seconds waiting."""
        ...

    @property
    def running_work(self) -> float:
        """GPU-seconds still to be done for running requests."""
        ...

    @property
    def running(self) -> int:
        """How many requests run."""
        ...

    @property
    def margin(self) -> float:
        """Factor on predicted sojourns."""
        ...

    @property
    def draining(self) -> bool:
        """Whether new work is turned away because the process ends."""
        ...

    def forecast(self, now: float) -> Forecast:
        """The forecast of the present queue."""
        ...

    def length(self, request: Request) -> OutputLength | None:
        """What was learned of a request's output; None: it counts as the maximum."""
        ...

    def held(self, request: Request, now: float) -> float:
        """GPU-seconds that this request has to leave to other tiers and size classes."""
        ...

    def quota_wait(self, request: Request, cost: float, now: float) -> float:
        """Seconds until the client's quota allows the request; 0: now."""
        ...

    def memory_wait(self, request: Request, length: OutputLength | None) -> float:
        """Seconds that the request waits for the pods' memory; infinite: it never fits."""
        ...

    def regret(self, request: Request, cost: float, wait: float, now: float) -> float:
        """Answers that admitting the request would lose, by shorter ones that will come."""
        ...

    def jitter(self) -> float:
        """A uniform random number in [0, 1)."""
        ...
