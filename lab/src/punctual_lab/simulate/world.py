"""Discrete events: the ledger of the product on virtual time, in front of simulated engines."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from punctual_admission.ledger import Ledger
from punctual_admission.margin import Margin
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import Policy
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Refusal, Request, State, Ticket
from punctual_lab.simulate.engine import Engine, Token

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request of the workload: when (seconds), how long, how urgent (seconds)."""

    at: float
    prompt_tokens: int
    max_tokens: int
    budget: float
    output_tokens: int | None = None
    """Tokens it really makes; None: all of `max_tokens`."""

    @property
    def actual_tokens(self) -> int:
        """Tokens the engine will make."""
        return self.max_tokens if self.output_tokens is None else self.output_tokens


@dataclass(slots=True)
class Record:
    """What became of one arrival."""

    arrival: Arrival
    outcome: Outcome | None = None
    reason: Reason | None = None
    started: float | None = None
    ended: float | None = None
    ticket: Ticket | None = None
    refusal: Refusal | None = None


@dataclass(slots=True)
class PodSpec:
    """A simulated pod: the truth, what the gateway believes, the noise on each operation."""

    truth: ServiceModel
    believed: ServiceModel | None = None
    noise: Callable[[], float] = field(default=lambda: 1.0)


class World:
    """Runs arrivals through a ledger; ends when every request has ended."""

    def __init__(
        self,
        policy: Policy,
        pods: Sequence[PodSpec],
        *,
        seed: int = 0,
        sojourns: Margin | None = None,
        services: Margin | None = None,
    ) -> None:
        self.now = 0.0
        self.records: list[Record] = []
        self._by_id: dict[str, Record] = {}
        self._by_sequence: dict[int, Ticket] = {}
        self.ledger = Ledger(
            policy,
            ended=self._on_ended,
            rng=random.Random(seed),
            sojourns=sojourns,
            services=services,
        )
        self.engines: dict[str, Engine] = {}
        for index, pod in enumerate(pods):
            pod_id = f"pod-{index}"
            self.engines[pod_id] = Engine(pod.truth, pod.noise)
            self.ledger.join_pod(pod_id, pod.believed or pod.truth, 0.0)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do `action` at virtual time `when`; equal times in the order of the calls."""
        self._order += 1
        heappush(self._agenda, (when, self._order, action))

    def run(self, arrivals: Iterable[Arrival]) -> list[Record]:
        """Play all arrivals to their ends; returns one record each, in order of arrival."""
        for arrival in sorted(arrivals, key=lambda a: a.at):
            self.at(arrival.at, lambda arrival=arrival: self._arrive(arrival))  # type: ignore[misc]
        while (event := self._next_event()) is not None:
            event()
        return self.records

    def _next_event(self) -> Callable[[], None] | None:
        agenda = self._agenda[0][0] if self._agenda else NEVER
        pod_id = min(self.engines, key=lambda name: self.engines[name].next_event, default=None)
        engine = NEVER if pod_id is None else self.engines[pod_id].next_event
        wake = max(self.ledger.next_wakeup(), self.now)
        first = min(agenda, engine, wake)
        if first == NEVER:
            return None
        self.now = max(self.now, first)
        if engine == first and pod_id is not None:
            return lambda: self._advance(pod_id)
        if wake == first:
            return self._wake
        return heappop(self._agenda)[2]

    def _arrive(self, arrival: Arrival) -> None:
        number = len(self.records)
        record = Record(arrival)
        self.records.append(record)
        request = Request(
            f"r{number}", arrival.prompt_tokens, arrival.max_tokens, self.now,
            self.now + arrival.budget,
        )  # fmt: skip
        self._by_id[request.id] = record
        answer = self.ledger.offer(request, self.now)
        if isinstance(answer, Refusal):
            record.outcome, record.reason = Outcome.REFUSED, answer.reason
            record.refusal, record.ended = answer, self.now
            return
        record.ticket = answer
        if answer.state is State.RUNNING:
            self._dispatch(answer)
        self._start_all()

    def _start_all(self) -> None:
        while (ticket := self.ledger.next_start(self.now)) is not None:
            self._dispatch(ticket)

    def _dispatch(self, ticket: Ticket) -> None:
        record = self._by_id[ticket.request.id]
        record.started = self.now
        self._by_sequence[ticket.sequence] = ticket
        self.engines[ticket.pod or ""].submit(
            ticket.sequence, ticket.request.prompt_tokens, record.arrival.actual_tokens, self.now
        )

    def _advance(self, pod_id: str) -> None:
        engine = self.engines[pod_id]
        tokens = engine.advance()
        for token in tokens:
            self.ledger.progressed(self._by_sequence[token.key], self.now)
        for token in tokens:
            if token.last:
                self._complete(token)
        self._start_all()
        engine.resume(self.now)

    def _complete(self, token: Token) -> None:
        ticket = self._by_sequence.pop(token.key)
        record = self._by_id[ticket.request.id]
        record.outcome, record.ended = self.ledger.complete(ticket, self.now), self.now

    def _wake(self) -> None:
        self.ledger.wake(self.now)
        self._start_all()

    def _on_ended(self, ticket: Ticket) -> None:
        record = self._by_id[ticket.request.id]
        record.outcome, record.reason, record.ended = ticket.outcome, ticket.reason, self.now
