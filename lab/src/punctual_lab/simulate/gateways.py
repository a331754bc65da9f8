"""Several gateways in front of one pool, on virtual time.

Each gateway has a ledger of its own and knows of the others only what the pods report: every
`poll` seconds, each at its own moment, it hears what a pod runs and holds for others. A request
that it sends takes `travel` seconds to the pod, and the pod has the last word: it sends back,
undone, what it could not finish in time. The gateway then decides about it again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING

from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import policy_from_spec
from punctual_admission.pool import Foreign
from punctual_admission.ticket import Refusal, Request, State, Ticket
from punctual_lab.simulate.engine import NEVER, Engine
from punctual_lab.simulate.margins import NoMargin
from punctual_lab.simulate.world import Arrival, PodSpec, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from punctual_admission.policy import Policy

MOST_DISPATCHES = 4
"""As the gateway: times a request is sent to pods."""
RETRY_PAUSE = 0.05
"""As the gateway: seconds for which a pod that sent work back is left alone."""
LAST_WORD = policy_from_spec(
    {
        "model": "m",
        "queue": {"order": "FirstInFirstOut"},
        "deadline": {"maximumMilliseconds": 86_400_000},
    }
)


@dataclass(slots=True, eq=False)
class _Dispatch:
    """One request on its way to a pod, or on it."""

    gateway: int
    ticket: Ticket
    mirror: Ticket
    """Its ticket in the pod's own account: that of the gateway until it is there."""
    gone: bool = False


class _Pod:
    """An engine, and the account by which it has its last word: first come, first served."""

    def __init__(self, name: str, spec: PodSpec) -> None:
        self.name = name
        self.engine: Engine[_Dispatch] = Engine(spec.truth, spec.noise)
        self.account = Ledger(LAST_WORD, sojourns=NoMargin(), services=NoMargin())
        self.account.join_pod(name, spec.truth, 0.0, spec.ratio)
        self.here: list[_Dispatch] = []

    def report(self, gateway: int) -> list[Foreign]:
        """What it runs and holds for other gateways than this one."""
        return [_foreign(sent.mirror) for sent in self.here if sent.gateway != gateway]


def _foreign(ticket: Ticket) -> Foreign:
    left = max(ticket.request.output_tokens - ticket.generated, 1)
    return Foreign(left, None if ticket.generated else ticket.request.prompt_tokens)


@dataclass(slots=True)
class Counts:
    """What the gateways did."""

    dispatches: int = 0
    declined: int = 0
    declined_wait: list[float] = field(default_factory=list)
    """Seconds from the arrival of a request to its first word back from a pod."""


class Gateways:
    """Plays arrivals, each to a gateway chosen at random."""

    def __init__(
        self,
        policy: Policy,
        pods: Sequence[PodSpec],
        gateways: int,
        *,
        poll: float = 0.2,
        travel: float = 0.0005,
        tell: float | None = 0.005,
        seed: int = 0,
    ) -> None:
        self.now = 0.0
        self.records: list[Record] = []
        self.counts = Counts()
        self._poll, self._travel, self._tell_after = poll, travel, tell
        self._telling: set[int] = set()
        self._rng = random.Random(seed)
        self._pods = {f"pod-{index}": _Pod(f"pod-{index}", spec) for index, spec in enumerate(pods)}
        self._by_id: dict[str, Record] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self.ledgers: list[Ledger] = []
        for number in range(gateways):
            ledger = Ledger(policy, ended=self._on_ended, rng=random.Random(seed + number))
            self.ledgers.append(ledger)
            for pod, spec in zip(self._pods.values(), pods, strict=True):
                ledger.join_pod(pod.name, spec.believed or spec.truth, 0.0, spec.ratio)
                self._at(self._rng.random() * poll, partial(self._ask, number, pod))

    def run(self, arrivals: Iterable[Arrival]) -> list[Record]:
        """One record an arrival, in order of arrival."""
        coming = sorted(arrivals, key=attrgetter("at"), reverse=True)
        self._open = len(coming)
        while coming or self._open:
            planned = self._agenda[0][0]
            arrival = coming[-1].at if coming else NEVER
            pod = min(self._pods.values(), key=lambda pod: pod.engine.ends)
            ledger = min(self.ledgers, key=Ledger.next_wakeup)
            wake = max(ledger.next_wakeup(), self.now)
            self.now = max(self.now, min(planned, arrival, pod.engine.ends, wake))
            if pod.engine.ends == self.now:
                self._advance(pod)
            elif wake == self.now:
                self._sync()
                ledger.wake(self.now)
                self._start_all(self.ledgers.index(ledger))
            elif planned == self.now:
                heappop(self._agenda)[2]()
            else:
                self._arrive(coming.pop())
        return self.records

    def _at(self, when: float, action: Callable[[], None]) -> None:
        self._order += 1
        heappush(self._agenda, (when, self._order, action))

    # --- gateways ------------------------------------------------------------------------------

    def _arrive(self, arrival: Arrival) -> None:
        gateway = self._rng.randrange(len(self.ledgers))
        record = Record(arrival)
        name = f"r{len(self.records)}"
        self.records.append(record)
        self._by_id[name] = record
        self._sync()
        request = Request(
            name, arrival.prompt_tokens, arrival.max_tokens, self.now, self.now + arrival.budget
        )
        answer = self.ledgers[gateway].offer(request, self.now)
        if isinstance(answer, Refusal):
            self._close(record, Outcome.REFUSED, answer.reason)
            return
        record.ticket = answer
        if answer.state is State.RUNNING:
            self._dispatch(gateway, answer)
        self._start_all(gateway)

    def _ask(self, gateway: int, pod: _Pod) -> None:
        self._at(self.now + self._poll, partial(self._ask, gateway, pod))
        self._sync()
        if self._tell_after is None:
            self.ledgers[gateway].observe_foreign(pod.name, pod.report(gateway))
            self._start_all(gateway)

    def _tell_peers(self, gateway: int) -> None:
        """Something has changed: the others hear of it a little later."""
        if self._tell_after is not None and len(self.ledgers) > 1 and gateway not in self._telling:
            self._telling.add(gateway)
            self._at(self.now + self._tell_after, partial(self._send, gateway))

    def _send(self, gateway: int) -> None:
        self._telling.discard(gateway)
        self._sync()
        ledger = self.ledgers[gateway]
        waiting = [ticket.request for ticket in ledger.own_queue]
        running = {pod.id: [_foreign(t) for t in pod.residents.values()] for pod in ledger.all_pods}
        self._at(self.now + self._travel, partial(self._hear, gateway, waiting, running))

    def _hear(
        self, gateway: int, waiting: list[Request], running: dict[str, list[Foreign]]
    ) -> None:
        self._sync()
        for other, ledger in enumerate(self.ledgers):
            if other != gateway:
                ledger.observe_peer(str(gateway), waiting, running, self.now)
                self._start_all(other, tell=False)

    def _start_all(self, gateway: int, *, tell: bool = True) -> None:
        if tell:
            self._tell_peers(gateway)
        while (ticket := self.ledgers[gateway].next_start(self.now)) is not None:
            self._tell_peers(gateway)
            self._dispatch(gateway, ticket)

    def _dispatch(self, gateway: int, ticket: Ticket) -> None:
        self.counts.dispatches += 1
        pod = self._pods[ticket.pod or ""]
        sent = _Dispatch(gateway, ticket, ticket)
        self._at(self.now + self._travel, partial(self._reach, pod, sent))

    def _take_back(self, sent: _Dispatch) -> None:
        ticket, ledger = sent.ticket, self.ledgers[sent.gateway]
        self._sync()
        if ticket.state is State.ENDED:
            return
        self.counts.declined += 1
        self.counts.declined_wait.append(self.now - ticket.request.arrival)
        if ticket.dispatches >= MOST_DISPATCHES:
            ledger.end(ticket, Outcome.EXPIRED, self.now, Reason.DEADLINE_EXCEEDED)
            self._on_ended(ticket)
        else:
            ledger.requeue(ticket, self.now, RETRY_PAUSE)
        self._start_all(sent.gateway)

    def _on_ended(self, ticket: Ticket) -> None:
        self._close(self._by_id[ticket.request.id], ticket.outcome, ticket.reason)

    def _close(self, record: Record, outcome: Outcome | None, reason: Reason | None) -> None:
        self._open -= 1
        record.outcome, record.reason, record.ended = outcome, reason, self.now

    # --- pods ----------------------------------------------------------------------------------

    def _reach(self, pod: _Pod, sent: _Dispatch) -> None:
        self._sync()
        ticket = sent.ticket
        answer = pod.account.offer(ticket.request, self.now)
        if isinstance(answer, Refusal):
            self._at(self.now + self._travel, partial(self._take_back, sent))
            return
        sent.mirror = answer
        pod.here.append(sent)
        arrival = self._by_id[ticket.request.id].arrival
        pod.engine.submit(
            sent, arrival.prompt_tokens, arrival.actual_tokens, self.now, arrival.slow
        )
        self._at(ticket.request.deadline, partial(self._cut_off, pod, sent))

    def _cut_off(self, pod: _Pod, sent: _Dispatch) -> None:
        self._sync()
        if sent.ticket.state is not State.RUNNING or sent.gone:
            return
        sent.gone = True
        pod.engine.cancel(sent, self.now)
        pod.here.remove(sent)
        pod.account.end(sent.mirror, Outcome.LATE, self.now)
        while pod.account.next_start(self.now) is not None:
            pass
        ledger = self.ledgers[sent.gateway]
        ledger.end(sent.ticket, Outcome.LATE, self.now, Reason.DEADLINE_EXCEEDED)
        self._on_ended(sent.ticket)
        self._start_all(sent.gateway)

    def _sync(self) -> None:
        for pod in self._pods.values():
            if pod.engine.ends != NEVER:
                self._tell(pod)

    def _tell(self, pod: _Pod) -> None:
        for when, dispatches, tokens in pod.engine.tell(self.now):
            for sent in dispatches:
                pod.account.progressed(sent.mirror, when, tokens)
                self.ledgers[sent.gateway].progressed(sent.ticket, when, tokens)

    def _advance(self, pod: _Pod) -> None:
        self._tell(pod)
        ended = pod.engine.finish()
        for sent in ended:
            sent.gone = True
            pod.here.remove(sent)
            pod.account.complete(sent.mirror, self.now)
            outcome = self.ledgers[sent.gateway].complete(sent.ticket, self.now)
            self._close(self._by_id[sent.ticket.request.id], outcome, None)
        while ended and pod.account.next_start(self.now) is not None:
            pass
        for sent in ended:
            self._start_all(sent.gateway)
        pod.engine.resume()
