"""Drives the ledger: wakes whoever may start, and keeps its timer.

Nothing here waits. Each waiting request is one future, which becomes done when the ledger started
its ticket or ended it; the ticket's own state says which.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from punctual_admission.decision import decide, examine
from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import Policy
from punctual_admission.recording.recorder import RecordingLedger, Sink, record, stop
from punctual_admission.retry_after import retry_delay
from punctual_admission.ticket import Refusal, Request, State, Ticket
from punctual_gateway.peers import Hub

SOONEST = 0.001
"""Resolution of the event loop's timers in seconds: an earlier wake would come too soon."""
RETRY_PAUSE = 0.05
"""Seconds for which a pod that sent work back is left alone."""


class Scheduler:
    """Offers, starts and ends tickets on the machine's monotonic clock."""

    def __init__(self, policy: Policy) -> None:
        self.ledger: Ledger = Ledger(policy, ended=self._on_ended)
        self.waiting: dict[int, asyncio.Future[None]] = {}
        """One future for each waiting request, by the ticket's sequence."""
        self._timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.Future[None] | None = None
        self.hub = Hub(self)
        """Tells other gateways what waits and runs here."""
        self.last_progress: dict[str, float] = {}
        """When each pod last made a token, by pod id."""

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    @property
    def empty(self) -> bool:
        """Whether nobody waits and nobody runs."""
        return not self.ledger.own_queue and not self.ledger.running

    def record(self, sink: Sink) -> None:
        """Write every decision to `sink` from now on."""
        self.stop_recording()
        self.ledger = record(self.ledger, sink, lambda: self.now)

    def stop_recording(self) -> None:
        """Write no more, if decisions are written."""
        if isinstance(self.ledger, RecordingLedger):
            self.ledger = stop(self.ledger)

    def offer(self, request: Request, *, shorter: bool = False) -> Ticket | Refusal:
        """Decide about a request; with `shorter` a shorter answer is taken before a refusal."""
        now = self.now
        answer = self.ledger.offer(request, now)
        if shorter and isinstance(answer, Refusal):
            answer = self._offer_shorter(request, answer, now)
        if isinstance(answer, Ticket):
            self.pump()
        return answer

    def _offer_shorter(self, request: Request, refused: Refusal, now: float) -> Ticket | Refusal:
        """The counter-offer, taken at the moment for which it was made."""
        tokens = None if refused.offer is None else refused.offer.output_tokens
        if tokens is None:
            return refused
        answer = self.ledger.offer(replace(request, output_tokens=tokens), now)
        return answer if isinstance(answer, Ticket) else refused

    def try_offer(self, request: Request) -> Refusal | None:
        """The refusal that a request would get, without taking anything for it."""
        answer = decide(self.ledger.policy, self.ledger, request, self.now)
        return answer if isinstance(answer, Refusal) else None

    def refuse(self, request: Request, reason: Reason) -> Refusal:
        """A refusal for a reason that lies in the request: no retry can help."""
        now, ledger = self.now, self.ledger
        prediction = examine(ledger.policy, ledger, request, now).prediction
        delay = retry_delay(reason, prediction, 0.0, ledger.jitter())
        return Refusal(reason, prediction, delay, retry_may_help=False)

    async def wait_started(self, ticket: Ticket) -> None:
        """Wait until the ticket runs or has ended."""
        if ticket.state is not State.QUEUED:
            return
        future = asyncio.get_running_loop().create_future()
        self.waiting[ticket.sequence] = future
        try:
            await future
        finally:
            del self.waiting[ticket.sequence]

    def progressed(self, ticket: Ticket, tokens: int) -> None:
        """Tokens have come for a running ticket."""
        now = self.now
        self.ledger.progressed(ticket, now, tokens)
        if ticket.pod is not None:
            self.last_progress[ticket.pod] = now
        self.hub.changed(tokens=True)

    def complete(self, ticket: Ticket) -> Outcome:
        """The whole answer has come."""
        outcome = self.ledger.complete(ticket, self.now)
        self.pump()
        return outcome

    def end(self, ticket: Ticket, outcome: Outcome, reason: Reason | None = None) -> None:
        """End a ticket, unless it has ended: safe in every `finally`."""
        if ticket.state is State.ENDED:
            return
        self.ledger.end(ticket, outcome, self.now, reason)
        self.pump()

    def requeue(self, ticket: Ticket, pause: float = RETRY_PAUSE) -> None:
        """Put back a ticket of which its pod did nothing."""
        self.ledger.requeue(ticket, self.now, pause)
        self.pump()

    def pump(self, *, tell: bool = True) -> None:
        """Start what can start, and set the timer for what comes next.

        Other gateways are told, unless nothing has started and it was they who told this one.
        """
        now, ledger = self.now, self.ledger
        while (ticket := ledger.next_start(now)) is not None:
            self._release(ticket)
            tell = True
        if tell:
            self.hub.changed()
        self._set_timer(now)
        if self._idle is not None and self.empty and not self._idle.done():
            self._idle.set_result(None)

    async def wait_empty(self) -> None:
        """Wait until nobody waits and nobody runs."""
        if self.empty:
            return
        self._idle = asyncio.get_running_loop().create_future()
        await self._idle

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, now: float) -> None:
        self.close()
        when = self.ledger.next_wakeup()
        if when != float("inf"):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(when - now, 0.0) + SOONEST, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.ledger.wake(self.now)
        self.pump()

    def _on_ended(self, ticket: Ticket) -> None:
        self._release(ticket)

    def _release(self, ticket: Ticket) -> None:
        future = self.waiting.get(ticket.sequence)
        if future is not None and not future.done():
            future.set_result(None)
