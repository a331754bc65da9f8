"""Other gateways over the same pool: what waits there is in the same queue.

Each gateway tells the others what waits and what runs for it, whenever that changes. Their waiting
requests stand in this queue too, marked with whose they are, so every gateway sees one merged
queue and decides by it; a slot that falls free is for the first in that queue, and its gateway
alone starts it. What is heard is a little old, so two gateways may admit into the same room, or
start into the same slot: the pod's last word catches that. A gateway that does not take its turn
for `PATIENCE` seconds is overtaken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from punctual_admission.ticket import Prediction, Request, Ticket
from punctual_admission.track import NEVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from punctual_admission.pool import Foreign, Pod

PATIENCE = 0.02
"""Seconds for which a free slot is left to whoever comes first at another gateway."""


@dataclass(slots=True)
class _Peer:
    waiting: dict[str, Ticket] = field(default_factory=dict)
    """By the request's id."""
    running: dict[str, tuple[Foreign, ...]] = field(default_factory=dict)
    """By the pod's id."""


class Peers:
    """What was last heard of each other gateway; false while there is none."""

    def __init__(self) -> None:
        self._known: dict[str, _Peer] = {}
        self._yielding = ""
        self._since = NEVER
        """To which request a free slot is left, and since when."""

    def __bool__(self) -> bool:
        return bool(self._known)

    @property
    def impatient_at(self) -> float:
        """When whoever has not taken its turn is overtaken."""
        return self._since + PATIENCE

    def waiting(self, peer: str) -> dict[str, Ticket]:
        """The tickets that stand in the queue for a peer, by request id; the caller's to change."""
        return self._known.setdefault(peer, _Peer()).waiting

    def run(self, peer: str, running: Mapping[str, Sequence[Foreign]]) -> None:
        """What a peer runs, by pod."""
        known = self._known.setdefault(peer, _Peer())
        known.running = {pod_id: tuple(foreign) for pod_id, foreign in running.items()}

    def forget(self, peer: str) -> None:
        """A peer has gone."""
        self._known.pop(peer, None)

    def running_on(self, pod_id: str) -> tuple[Foreign, ...]:
        """What all peers run on a pod."""
        return tuple([one for peer in self._known.values() for one in peer.running.get(pod_id, ())])

    def first_own(self, queue: Sequence[Ticket], pods: Sequence[Pod], now: float) -> int | None:
        """The place of the own request that may start next; None: others come first."""
        place = next((i for i, ticket in enumerate(queue) if not ticket.peer), None)
        if not place:
            self._since = NEVER
            return place
        free = sum([pod.free_slots for pod in pods if pod.paused_until <= now])
        if place < free:
            return place
        head = queue[0].request.id
        if not free or head != self._yielding or self._since > now:
            self._yielding, self._since = head, now if free else NEVER
            return None
        return place if now >= self.impatient_at else None


def waiting_elsewhere(peer: str, request: Request, sequence: int, cost: float) -> Ticket:
    """The ticket that stands for a request which waits at a peer; it is never given up here."""
    nothing = Prediction(0.0, 0.0, 1.0, request.budget, 0.0, 0.0, 0, 0, 0)
    return Ticket(request, sequence, nothing, cost, kept=True, peer=peer)
