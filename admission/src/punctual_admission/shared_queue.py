"""The queue of the ledger, with what is known to wait at other gateways (see `peers`)."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from punctual_admission.peers import Peers, waiting_elsewhere
from punctual_admission.ticket import QUEUED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from punctual_admission.line import Ahead
    from punctual_admission.pool import Foreign, Pod
    from punctual_admission.ticket import Request, Ticket


class SharedQueue:
    """One queue for all gateways: the own requests, and those that are known to wait elsewhere."""

    _queue: list[Ticket]
    _queued_work: float
    _ahead: Ahead
    _pods: dict[str, Pod]
    _peers: Peers
    _sequence: int

    if TYPE_CHECKING:

        def _order(self, ticket: Ticket) -> tuple[float, float]: ...
        def _cost(self, request: Request) -> float: ...
        def _changed(self) -> None: ...

    @property
    def own_queue(self) -> Sequence[Ticket]:
        """Those that wait here, without those that wait at other gateways."""
        return [t for t in self._queue if not t.peer] if self._peers else self._queue

    @property
    def own_queued_work(self) -> float:
        """GPU-seconds of those that wait here."""
        if not self._peers:
            return self._queued_work
        return sum([ticket.cost for ticket in self.own_queue])

    @property
    def queue(self) -> Sequence[Ticket]:
        """Waiting tickets, those of other gateways among them, next first."""
        return self._queue

    @property
    def queued_work(self) -> float:
        """GPU-seconds waiting, at other gateways too."""
        return self._queued_work

    # --- other gateways ------------------------------------------------------------------------

    def observe_foreign(self, pod_id: str, foreign: Iterable[Foreign]) -> None:
        """What the pod runs for other gateways, by its own report."""
        pod = self._pods.get(pod_id)
        if pod is not None:
            pod.reported = tuple(foreign)
            self._merge_foreign()

    def observe_peer(
        self,
        peer: str,
        waiting: Iterable[Request],
        running: Mapping[str, Sequence[Foreign]],
        now: float,
    ) -> None:
        """What waits at another gateway, and what it runs, by pod; deadlines by this clock."""
        known = self._peers.waiting(peer)
        heard = {request.id: request for request in waiting if request.deadline > now}
        for ticket in [t for t in known.values() if t.request.id not in heard]:
            for ahead in self._queue[: self._place(ticket)]:
                # if it has started, these were not waited for
                ahead.overtaken = True
            self._forget_elsewhere(ticket)
        for request in [one for name, one in heard.items() if name not in known]:
            self._sequence += 1
            cost = self._cost(request)
            ticket = known[request.id] = waiting_elsewhere(peer, request, self._sequence, cost)
            ticket.order = self._order(ticket)
            self._enqueue(ticket)
        self._peers.run(peer, running)
        self._merge_foreign()

    def lose_peer(self, peer: str) -> None:
        """Another gateway has gone, with all that waited there."""
        for ticket in list(self._peers.waiting(peer).values()):
            self._forget_elsewhere(ticket)
        self._peers.forget(peer)
        self._merge_foreign()

    def _forget_elsewhere(self, ticket: Ticket) -> None:
        """It no longer waits at its gateway."""
        del self._peers.waiting(ticket.peer)[ticket.request.id]
        self._dequeue(self._place(ticket))

    def _place(self, ticket: Ticket) -> int:
        return bisect_left(self._queue, ticket.order, key=by_order)

    def _merge_foreign(self) -> None:
        for pod in self._pods.values():
            pod.foreign = pod.reported + self._peers.running_on(pod.id)
            if pod.foreign and len(pod.foreign) + len(pod.residents) > pod.slots:
                for ticket in pod.residents.values():
                    ticket.crowded = ticket.crowded or ticket.first_token is None
        self._changed()

    # --- coming and going ----------------------------------------------------------------------

    def _enqueue(self, ticket: Ticket) -> None:
        ticket.state = QUEUED
        queue = self._queue
        if not queue or queue[-1].order < ticket.order:
            queue.append(ticket)
        else:
            place = bisect_left(queue, ticket.order, key=by_order)
            queue.insert(place, ticket)
            for behind in queue[place + 1 :]:
                behind.overtaken = True
        self._queued_work += ticket.cost
        self._ahead.add(ticket)
        self._changed()

    def _dequeue(self, place: int) -> None:
        ticket = self._queue.pop(place)
        self._queued_work = self._queued_work - ticket.cost if self._queue else 0.0
        self._ahead.add(ticket, -1)
        self._changed()


def by_order(ticket: Ticket) -> tuple[float, float]:
    """The key by which a queue is sorted."""
    return ticket.order
