"""Discrete events: the ledger of the product on virtual time, in front of simulated engines."""

from __future__ import annotations

import random
import weakref
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING

from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import Objective, Overdue, Policy
from punctual_admission.ticket import ENDED, RUNNING, Refusal, Request, Ticket
from punctual_lab.load.retry import Refusal as Refused
from punctual_lab.simulate.engine import NEVER, Engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from punctual_admission.margin import Margin
    from punctual_admission.service_time import ServiceModel
    from punctual_lab.load.retry import RetryBehaviour

_CANCEL, _REFUSED = Overdue.CANCEL, Outcome.REFUSED


@dataclass(slots=True, unsafe_hash=True)  # not frozen: a workload has thousands
class Arrival:
    """A request of the workload: when (seconds), how long, how urgent (seconds)."""

    at: float
    prompt_tokens: int
    max_tokens: int
    budget: float
    output_tokens: int | None = None
    """Tokens it really makes; None: all of `max_tokens`."""
    slow: float = 1.0
    """Factor on its true service time."""
    tier: str = ""
    client: str = ""
    leaves_after: float | None = None
    """Seconds after which its client leaves; None: it stays."""
    takes_shorter: bool = False
    """Whether it takes the counter-offer instead of a refusal."""

    @property
    def actual_tokens(self) -> int:
        """Tokens the engine will make."""
        return self.max_tokens if self.output_tokens is None else self.output_tokens


@dataclass(slots=True)
class Record:
    """What became of one attempt of one arrival."""

    arrival: Arrival
    attempt: int = 1
    outcome: Outcome | None = None
    reason: Reason | None = None
    started: float | None = None
    ended: float | None = None
    ticket: Ticket | None = None
    left: bool = False
    """Its client has gone."""
    refusal: Refusal | None = None
    retry: Record | None = None
    """The client's next attempt, if it made one."""


@dataclass(slots=True)
class PodSpec:
    """A simulated pod: the truth, what the gateway believes of it, the noise on each operation.

    `ratio` is the start of the gateway's speed ratio: what a probe at pod start would measure.
    """

    truth: ServiceModel
    believed: ServiceModel | None = None
    noise: Callable[[], float] | None = None
    ratio: float = 1.0
    memory_tokens: int | None = None


class World:
    """Runs arrivals through a ledger; ends when every request has ended.

    A refused client does what `retry` says; None: it gives up. Work whose client has left is
    stopped, unless `cancels` is False.
    """

    def __init__(
        self,
        policy: Policy,
        pods: Sequence[PodSpec],
        *,
        seed: int = 0,
        sojourns: Margin | None = None,
        services: Margin | None = None,
        retry: RetryBehaviour | None = None,
        cancels: bool = True,
    ) -> None:
        self.now = 0.0
        self._cancels = cancels
        self.records: list[Record] = []
        self._by_id: dict[str, Record] = {}
        self._retry = retry
        # The ledger must not hold the world, or only a collector of cycles could free it.
        world = weakref.proxy(self)
        self.ledger = Ledger(
            policy,
            ended=lambda ticket: world._on_ended(ticket),  # noqa: PLW0108, SLF001
            rng=random.Random(seed),
            sojourns=sojourns,
            services=services,
        )
        self.engines: dict[str, Engine[Ticket]] = {}
        for index, pod in enumerate(pods):
            pod_id = f"pod-{index}"
            self.engines[pod_id] = Engine(pod.truth, pod.noise)
            self.ledger.join_pod(pod_id, pod.believed or pod.truth, 0.0, pod.ratio)
            self.ledger.observe_memory(pod_id, pod.memory_tokens)
        self._engines = list(self.engines.values())
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do `action` at virtual time `when`; equal times in the order of the calls."""
        self._order += 1
        heappush(self._agenda, (when, self._order, action))

    def slow_down(self, when: float, factor: float) -> None:
        """Make every time of every pod `factor` times the model's from `when` on."""
        self.at(when, lambda: self._set_slow(factor))

    def run(self, arrivals: Iterable[Arrival]) -> list[Record]:
        """Play all arrivals to their ends; returns one record an attempt, in order of arrival."""
        coming = sorted(arrivals, key=attrgetter("at"), reverse=True)
        agenda, ledger, now = self._agenda, self.ledger, self.now
        while True:
            engine = self._next_engine()
            first, happens = engine.ends, 0
            wake = ledger.next_wakeup()
            if wake < now:
                wake = now
            if wake < first:
                first, happens = wake, 1
            if agenda and agenda[0][0] < first:
                first, happens = agenda[0][0], 2
            if coming and coming[-1].at < first:
                first, happens = coming[-1].at, 3
            if first == NEVER:
                return self.records
            if first > now:
                self.now = now = first
            if happens == 0:
                self._advance(engine)
            elif happens == 1:
                self._wake()
            elif happens == 2:
                heappop(agenda)[2]()
            else:
                self._arrive(coming.pop(), 1)

    def _next_engine(self) -> Engine[Ticket]:
        engines = self._engines
        return engines[0] if len(engines) == 1 else min(engines, key=attrgetter("ends"))

    def _arrive(self, arrival: Arrival, attempt: int) -> Record:
        record = Record(arrival, attempt)
        if self._retry is not None and attempt == 1:
            self._retry.first_attempt()
        request = self._build_request(arrival)
        self.records.append(record)
        self._by_id[request.id] = record
        self._sync()
        answer = self.ledger.offer(request, self.now)
        if arrival.takes_shorter and isinstance(answer, Refusal):
            answer = self._take_offer(request, answer)
        if isinstance(answer, Refusal):
            self._refuse(record, answer)
            return record
        record.ticket = answer
        if arrival.leaves_after is not None:
            self.at(self.now + arrival.leaves_after, lambda: self._client_leaves(record))
        if answer.state is RUNNING:
            self._dispatch(answer)
        return record

    def _build_request(self, arrival: Arrival) -> Request:
        now = self.now
        return Request(
            f"r{len(self.records)}", arrival.prompt_tokens, arrival.max_tokens, now,
            now + arrival.budget, "", arrival.tier, arrival.client,
        )  # fmt: skip

    def _take_offer(self, request: Request, refusal: Refusal) -> Ticket | Refusal:
        tokens = None if refusal.offer is None else refusal.offer.output_tokens
        if tokens is None:
            return refusal
        return self.ledger.offer(replace(request, output_tokens=tokens), self.now)

    def _refuse(self, record: Record, refusal: Refusal) -> None:
        record.outcome, record.reason = _REFUSED, refusal.reason
        record.refusal, record.ended = refusal, self.now
        if self._retry is None:
            return
        seen = Refused(record.attempt, refusal.retry_after, refusal.retry_may_help)
        delay = self._retry.delay_seconds(seen)
        if delay is not None:
            self.at(self.now + delay, lambda: self._try_again(record))

    def _try_again(self, record: Record) -> None:
        record.retry = self._arrive(record.arrival, record.attempt + 1)

    def _sync(self) -> None:
        """Tell the ledger the tokens that have come since the last event."""
        for engine in self._engines:
            if engine.ends != NEVER:
                self._tell(engine)

    def _tell(self, engine: Engine[Ticket]) -> None:
        for when, tickets, tokens in engine.tell(self.now):
            for ticket in tickets:
                self.ledger.progressed(ticket, when, tokens)

    def _start_all(self) -> None:
        while (ticket := self.ledger.next_start(self.now)) is not None:
            self._dispatch(ticket)

    def _dispatch(self, ticket: Ticket) -> None:
        request = ticket.request
        record = self._by_id[request.id]
        record.started = self.now
        arrival = record.arrival
        tokens = arrival.actual_tokens
        if tokens > request.output_tokens:
            tokens = request.output_tokens
        self.engines[ticket.pod or ""].submit(
            ticket, arrival.prompt_tokens, tokens, self.now, arrival.slow
        )
        if self.ledger.policy.overdue is _CANCEL:
            self.at(request.deadline, lambda: self._cut_off(ticket))

    def _advance(self, engine: Engine[Ticket]) -> None:
        self._tell(engine)
        ended = engine.finish()
        for ticket in ended:
            record = self._by_id[ticket.request.id]
            record.outcome, record.ended = self.ledger.complete(ticket, self.now), self.now
            if record.left:
                record.outcome = Outcome.CANCELLED
        if ended:
            self._start_all()
        engine.resume()

    def _client_leaves(self, record: Record) -> None:
        """The client has gone: its place is free, unless nobody tells the pods."""
        ticket = record.ticket
        if ticket is None or ticket.state is ENDED:
            return
        record.left = True
        if not self._cancels:
            return
        self._sync()
        if ticket.state is RUNNING:
            self.engines[ticket.pod or ""].cancel(ticket, self.now)
        self.ledger.end(ticket, Outcome.CANCELLED, self.now)
        self._on_ended(ticket)
        self._start_all()

    def _cut_off(self, ticket: Ticket) -> None:
        """The deadline of a running request has passed (`overdue: Cancel`)."""
        self._sync()
        objective = self.ledger.policy.objective
        kept = objective is Objective.FIRST_TOKEN and ticket.first_token is not None
        if ticket.state is not RUNNING or kept:
            return
        self.engines[ticket.pod or ""].cancel(ticket, self.now)
        self.ledger.end(ticket, Outcome.LATE, self.now, Reason.DEADLINE_EXCEEDED)
        self._on_ended(ticket)
        self._start_all()

    def _wake(self) -> None:
        self._sync()
        self.ledger.wake(self.now)
        self._start_all()

    def _set_slow(self, factor: float) -> None:
        self._sync()
        for engine in self._engines:
            engine.set_slow(factor, self.now)

    def _on_ended(self, ticket: Ticket) -> None:
        record = self._by_id[ticket.request.id]
        record.outcome, record.reason, record.ended = ticket.outcome, ticket.reason, self.now
