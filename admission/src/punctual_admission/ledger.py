"""The ledger: who waits, who runs where, and what was learned. The only mutable thing of the core.

Every method is synchronous and takes the time as an argument, so between a check and what it
allows nothing can happen. The driver (the gateway, or the simulator) calls

    offer(request, now)      -> a Ticket (see its `state`), or a Refusal
    progressed(ticket, now)  for each token that comes
    complete(ticket, now)    at the end of an answer, or end(...) for every other way to end
    next_start(now)          until it returns None, after anything that frees a slot
    wake(now)                no later than next_wakeup()

and every ticket ends exactly once. Tickets that the ledger itself ends (dropped from the queue,
displaced) are told to the `ended` listener.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable, Sequence

from punctual_admission.accounts import Accounts
from punctual_admission.decision import Admission, decide
from punctual_admission.displacement import find_passing
from punctual_admission.forecast import EPSILON, Forecast, Lateness, choose
from punctual_admission.known_pods import KnownPods
from punctual_admission.line import Ahead
from punctual_admission.margin import Margin
from punctual_admission.memory import free_memory, memory_wait, reservation
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.output_length import OutputLength, OutputLengths
from punctual_admission.peers import Peers
from punctual_admission.policy import Mode, Policy, Speed
from punctual_admission.pool import Pod
from punctual_admission.regret import GIVEN_UP, Regret
from punctual_admission.scout import Scouts
from punctual_admission.shared_queue import SharedQueue, by_order
from punctual_admission.ticket import ENDED, QUEUED, RUNNING, Refusal, Request, Ticket
from punctual_admission.track import NEVER, Track, item_of, joined

FORECAST_AGE = 0.002
"""Seconds for which a forecast may be used again while nothing changes but time."""
_GOOD, _LATE = Outcome.GOOD, Outcome.LATE
START_CHANCE = 0.5
"""Who has waited is started if its answer, of a length not known, fits with this probability."""


class Ledger(SharedQueue, KnownPods):
    """Queue, tickets and pods behind one policy; implements `view.PoolView`."""

    def __init__(
        self,
        policy: Policy,
        *,
        ended: Callable[[Ticket], None] = lambda _: None,
        rng: random.Random | None = None,
        sojourns: Margin | None = None,
        services: Margin | None = None,
    ) -> None:
        confidence = policy.estimate.confidence_percent / 100
        self.policy = policy
        self.draining = False
        self.sojourns = Margin(confidence) if sojourns is None else sojourns
        self.services = Margin(confidence) if services is None else services
        self.lengths = OutputLengths()
        self._scouts = Scouts(self.lengths)
        self._learns = policy.learns_lengths
        self.accounts = Accounts()
        self._ended = ended
        self._rng = random.Random() if rng is None else rng
        self._pods: dict[str, Pod] = {}
        self.pods: Sequence[Pod] = ()
        self._queue: list[Ticket] = []
        self._sequence = 0
        self._queued_work = 0.0
        self._ahead = Ahead()
        self._forecast: Forecast | None = None
        self._peers = Peers()
        self._regret = Regret()

    # --- what the decision reads -------------------------------------------------------------

    @property
    def margin(self) -> float:
        """Factor on predicted sojourns.

        Where lengths are learned, what they do to the wait is in the forecast's own deviations,
        so the margin is that of services alone.
        """
        return self.services.factor if self._learns else self.sojourns.factor

    def length(self, request: Request) -> OutputLength | None:
        """What was learned of a request's output; None: it counts as the maximum."""
        return self.lengths.estimate(request) if self._learns else None

    def forecast(self, now: float) -> Forecast:
        """The forecast of the present queue, at most `FORECAST_AGE` old."""
        known = self._forecast
        if known is None or not 0 <= now - known.now <= FORECAST_AGE:
            known = self._forecast = Forecast(self.pods, self._queue, now, self._ahead)
        return known

    def held(self, request: Request, now: float) -> float:
        """GPU-seconds that this request has to leave to other tiers and size classes."""
        return self.accounts.held(self.policy, request, len(self.pods), now)

    def quota_wait(self, request: Request, cost: float, now: float) -> float:
        """Seconds until the client's quota allows the request; 0: now."""
        return self.accounts.quota_wait(self.policy, request, cost, now)

    def memory_wait(self, request: Request, length: OutputLength | None) -> float:
        """Seconds that the request waits for the pods' memory; infinite: it never fits."""
        return memory_wait(self.pods, self._queue, reservation(self.policy.memory, request, length))

    def regret(self, request: Request, cost: float, wait: float, now: float) -> float:
        """Answers that admitting the request would lose, by shorter ones that will come."""
        kept = self.policy.divides and self.accounts.is_kept(self.policy, request)
        if kept or not self._has_one_slot():
            return 0.0
        rush = self._regret.rush(cost, len(self.pods), now, request.budget)
        if rush is None:
            return 0.0
        return rush.turned_away(cost / len(self.pods), rush.load * wait, request.budget)

    def jitter(self) -> float:
        """A uniform random number in [0, 1)."""
        return self._rng.random()

    # --- requests ----------------------------------------------------------------------------

    def offer(self, request: Request, now: float) -> Ticket | Refusal:
        """Decide, and take what was allowed: a refusal, or a ticket.

        The ticket runs if a slot was free, and waits otherwise. In mode Deadline it may have
        ended: it reached the front at once and could not finish in time.
        """
        if self.policy.divides:
            self._ask(request, now)
        answer = decide(self.policy, self, request, now)
        if self._learns and isinstance(answer, Refusal):
            answer = self._send_scout(request, answer, now) or answer
        if self.policy.displaces:
            self._regret.observe(now, self._cost(request))
        if isinstance(answer, Refusal):
            return answer
        if answer.displaced is not None:
            self.end(answer.displaced, Outcome.EXPIRED, now, Reason.DISPLACED)
            self._ended(answer.displaced)
        ticket = self._issue(request, answer, now)
        pod = None if answer.pod_id is None else self._pods[answer.pod_id]
        if pod is not None and not self._has_memory(pod, ticket):
            pod = self._pod_for(ticket, now)
        if pod is None:
            self._enqueue(ticket)
        elif self.policy.mode is Mode.DEADLINE:
            self._start_in_time(ticket, pod, now)
        else:
            self._start(ticket, pod, now)
        return ticket

    def next_start(self, now: float) -> Ticket | None:
        """Start the next in the queue if a slot is free; drops on the way whoever would be late."""
        while self._queue:
            place = self._peers.first_own(self._queue, self.pods, now) if self._peers else 0
            if place is None:
                return None
            ticket = self._queue[place]
            pod = self._pod_for(ticket, now)
            if pod is None:
                return None
            if self.policy.displaces and self._has_one_slot():
                first = self._first_past(place, now)
                if first is None:
                    self.end(ticket, Outcome.EXPIRED, now, Reason.DISPLACED)
                    self._ended(ticket)
                    continue
                place, ticket = first, self._queue[first]
            self._dequeue(place)
            if self._start_in_time(ticket, pod, now):
                return ticket
        return None

    def progressed(self, ticket: Ticket, now: float, tokens: int = 1) -> None:
        """Tokens have come from the ticket's pod."""
        pod, steps = self._pod_of(ticket), tokens
        if ticket.first_token is None:
            ticket.first_token = now
            self._book_prefill(ticket, pod)
            steps -= 1
        ticket.generated += tokens
        if steps:
            batch = len(pod.residents) + len(pod.foreign)
            ticket.expected_service += steps * pod.model.step(batch)
        pod.step_started, pod.step_due = now, 0.0
        self._forecast = None

    def complete(self, ticket: Ticket, now: float) -> Outcome:
        """The whole answer has come: GOOD or LATE; the only way to end that teaches."""
        self._teach(ticket, self._pod_of(ticket), now)
        first = now if ticket.first_token is None else ticket.first_token
        due = now if self.policy.completes else first
        outcome = _GOOD if due <= ticket.request.deadline else _LATE
        if self._learns:
            self.lengths.observe(ticket.request, ticket.generated, scout=ticket.scouts)
        self._close(ticket, outcome, now)
        return outcome

    def end(
        self, ticket: Ticket, outcome: Outcome, now: float, reason: Reason | None = None
    ) -> None:
        """End a ticket that is not a completed answer; raises RuntimeError if it has ended."""
        if ticket.state is ENDED:
            raise RuntimeError(f"ticket {ticket.request.id} must end once, it is {ticket.outcome}")
        if outcome is Outcome.LATE and self._learns:
            # Cut off; of a late answer that is whole, `complete` has taught the length.
            request = ticket.request
            self.lengths.observe(request, request.output_tokens, scout=ticket.scouts)
        self._close(ticket, outcome, now, reason)

    def _close(
        self, ticket: Ticket, outcome: Outcome, now: float, reason: Reason | None = None
    ) -> None:
        self._leave(ticket, now)
        if ticket.scouts and ticket.length is not None:
            self._scouts.end(ticket.request, ticket.length, outcome)
        ticket.state, ticket.outcome, ticket.reason = ENDED, outcome, reason

    def requeue(self, ticket: Ticket, now: float, pause_pod: float = 0.0) -> None:
        """Put back a ticket of which the pod did nothing; leave that pod alone for `pause_pod`."""
        pod = self._pod_of(ticket)
        pod.paused_until = max(pod.paused_until, now + pause_pod)
        self._leave(ticket, now)
        ticket.pod, ticket.first_token, ticket.generated = None, None, 0
        ticket.expected_service = 0.0
        ticket.overtaken = True
        self._enqueue(ticket)

    # --- time --------------------------------------------------------------------------------

    def next_wakeup(self) -> float:
        """When `wake` is due: the earliest deadline in the queue, or the end of a pod's pause."""
        queue = self._queue
        if not queue:
            return NEVER
        due = NEVER
        if self.policy.expires:
            due = queue[0].request.deadline
            if not self.policy.earliest_first:
                due = min([ticket.request.deadline for ticket in queue])
        for pod in self.pods if not queue[0].peer else ():
            sooner = pod.paused_until < due
            if sooner and pod.free_slots and self._has_memory(pod, queue[0]):
                due = pod.paused_until
        return min(due, self._peers.impatient_at) if self._peers else due

    def wake(self, now: float) -> None:
        """Drop whoever has waited past its deadline."""
        if self.policy.expires:
            for ticket in [t for t in self._queue if t.request.deadline <= now]:
                if ticket.peer:
                    self._forget_elsewhere(ticket)
                else:
                    self._expire(ticket, now)

    # --- policy ------------------------------------------------------------------------------

    def apply_policy(self, policy: Policy) -> None:
        """Swap the policy between two decisions; nobody who waits is dropped by the swap."""
        self.policy = policy
        self._learns = policy.learns_lengths
        for margin in (self.sojourns, self.services):
            margin.set_confidence(policy.estimate.confidence_percent / 100)
        for pod in self._pods.values():
            pod.speed.track(policy.estimate.speed is Speed.TRACKING)
        for ticket in self._queue:
            ticket.order = self._order(ticket)
        self._queue.sort(key=by_order)
        self._changed()

    # --- inside ------------------------------------------------------------------------------

    def _send_scout(self, request: Request, refusal: Refusal, now: float) -> Admission | None:
        """The admission of a request that was refused, as a scout."""
        if refusal.reason is not Reason.DEADLINE_UNREACHABLE:
            return None
        length = self._scout_on(self.pods, request, now)
        if length is None:
            return None
        answer = decide(self.policy, self, request, now, length)
        return answer if isinstance(answer, Admission) else None

    def _scout_on(self, pods: Sequence[Pod], request: Request, now: float) -> OutputLength | None:
        if self._queue or not self._learns:
            return None
        return self._scouts.length(self.policy, pods, request, self.margin, now)

    def _issue(self, request: Request, answer: Admission, now: float) -> Ticket:
        self._sequence += 1
        ticket = Ticket(
            request,
            self._sequence,
            answer.prediction,
            answer.cost,
            answer.length,
            answer.would_refuse,
        )
        ticket.order = self._order(ticket)
        if self.policy.divides:
            ticket.kept = self.accounts.is_kept(self.policy, request)
        self._prepare(ticket)
        self._take(ticket, now)
        return ticket

    def _prepare(self, ticket: Ticket) -> None:
        """What follows from the length that a ticket counts as."""
        request = ticket.request
        if ticket.scouts and ticket.length is not None:
            self._scouts.start(request, ticket.length)
        if self.policy.gates_memory:
            ticket.reserved = reservation(self.policy.memory, request, ticket.length)

    def _ask(self, request: Request, now: float) -> None:
        self.accounts.ask(self.policy, request, self._cost(request), now)

    def _cost(self, request: Request) -> float:
        pods = self.pods
        engine = pods[0].engine if pods else None
        return engine.cost(request.prompt_tokens, request.output_tokens) if engine else 0.0

    def _take(self, ticket: Ticket, now: float, sign: int = 1) -> None:
        """Take from shares and quota what the ticket costs; with `sign` -1 it is given back."""
        if ticket.request.client or self.policy.divides:
            pods = len(self.pods)
            self.accounts.take(self.policy, ticket.request, ticket.cost, pods, now, sign)

    def _order(self, ticket: Ticket) -> tuple[float, float]:
        by_deadline = self.policy.earliest_first
        return (ticket.request.deadline if by_deadline else 0.0, ticket.sequence)

    def _has_one_slot(self) -> bool:
        """Whether all is served one after the other; with more slots others may end later without
        somebody (Graham's anomaly), so nobody is given up unless the forecast has seen it.
        """
        return len(self.pods) == 1 and self.pods[0].slots == 1

    def _first_past(self, place: int, now: float) -> int | None:
        """The place of who starts, `place` or one that may pass it; None: `place` is given up."""
        queue, policy, first = self._queue, self.policy, place
        while self._costs_more(queue[first], now):
            test = Lateness(now, self.margin, policy.objective, policy.length_certainty)
            passing = find_passing(self.forecast(now), queue, first, test)
            if passing is None:
                return None
            first = passing
        for ticket in queue[place:first]:
            ticket.overtaken = True
        return first

    def _costs_more(self, ticket: Ticket, now: float) -> bool:
        """Whether starting it now would lose more than it wins: what runs cannot be given up."""
        if ticket.kept or len(self._queue) < 2 or self.policy.observes:
            return False
        cost, pods = ticket.cost, len(self.pods)
        budget = ticket.request.budget
        rush = self._regret.rush(cost, pods, now, budget)
        if rush is None:
            return False
        shorter = sum([one.cost for one in self._queue if one.cost < cost])
        return rush.turned_away(cost / pods, shorter / pods, budget) > GIVEN_UP

    def _pod_for(self, ticket: Ticket, now: float) -> Pod | None:
        pods = [pod for pod in self.pods if pod.free_slots and pod.paused_until <= now]
        if pods and self.policy.gates_memory:
            pods = [pod for pod in pods if self._has_memory(pod, ticket)]
        if len(pods) < 2:
            return pods[0] if pods else None
        tracks = [Track(index, pod, now) for index, pod in enumerate(pods)]
        track = choose(tracks, item_of(ticket), now)
        return self._pods[track.pod_id]

    def _has_memory(self, pod: Pod, ticket: Ticket) -> bool:
        return not self.policy.gates_memory or ticket.reserved <= free_memory(pod)

    def _start_in_time(self, ticket: Ticket, pod: Pod, now: float) -> bool:
        late = self.policy.expires and self._is_late(ticket, pod, now)
        if late and not self._goes_scouting(ticket, pod, now):
            ticket.state, ticket.outcome = ENDED, Outcome.EXPIRED
            ticket.reason = Reason.DEADLINE_EXCEEDED
            self._ended(ticket)
            return False
        self._start(ticket, pod, now)
        return True

    def _goes_scouting(self, ticket: Ticket, pod: Pod, now: float) -> bool:
        """Whether a ticket of mode Deadline, to which nothing is promised, scouts on the pod."""
        if self.policy.mode is not Mode.DEADLINE:
            return False
        length = self._scout_on((pod,), ticket.request, now)
        if length is None:
            return False
        ticket.length, ticket.item = length, None
        self._prepare(ticket)
        return True

    def _is_late(self, ticket: Ticket, pod: Pod, now: float) -> bool:
        """Whether the ticket would be late if it joined the pod now."""
        factor, policy = self.services.factor, self.policy
        if pod.residents or pod.foreign or ticket.length is not None:
            test = Lateness(now, factor, policy.objective, START_CHANCE)
            return test.late(joined(ticket, pod, now))
        engine, request = pod.engine, ticket.request
        due = pod.boundary(now) + engine.prefill(request.prompt_tokens)
        if policy.completes:
            due += (request.output_tokens - 1) * engine.step_seconds[0]
        return now + (due - now) * factor > request.deadline + EPSILON

    def _start(self, ticket: Ticket, pod: Pod, now: float) -> None:
        begin = pod.boundary(now)
        ticket.state, ticket.pod, ticket.started = RUNNING, pod.id, now
        prefill_end = begin + pod.engine.prefill(ticket.request.prompt_tokens)
        ticket.prefill_end = prefill_end
        ticket.ratio = pod.speed.value
        ticket.expected_service = (begin - now) / ticket.ratio
        ticket.dispatches += 1
        if pod.busy_until <= now < begin:
            pod.step_due = begin
        pod.busy_until = prefill_end
        if not pod.residents and not pod.foreign:
            pod.step_started = prefill_end
        pod.residents[ticket.sequence] = ticket
        self._forecast = None

    def _book_prefill(self, ticket: Ticket, pod: Pod) -> None:
        """A prefill holds up every resident of its pod."""
        seconds = pod.model.prefill(ticket.request.prompt_tokens)
        for resident in pod.residents.values():
            if resident is ticket or resident.generated:
                resident.expected_service += seconds

    def _teach(self, ticket: Ticket, pod: Pod, now: float) -> None:
        if ticket.crowded:
            return
        service, wait = now - ticket.started, ticket.started - ticket.request.arrival
        predicted = ticket.expected_service * ticket.ratio
        pod.speed.observe(service, ticket.expected_service)
        self.services.observe(service, predicted)
        promised = ticket.prediction.spent + ticket.prediction.wait
        if not ticket.overtaken and ticket.dispatches == 1:
            self.sojourns.observe(wait + service, promised + predicted)

    def _leave(self, ticket: Ticket, now: float) -> None:
        if ticket.state is QUEUED:
            place = bisect_left(self._queue, ticket.order, key=by_order)
            self._dequeue(place)
            self._take(ticket, now, -1)
            return
        pod = self._pod_of(ticket)
        del pod.residents[ticket.sequence]
        if not pod.residents:
            if pod.busy_until > now:
                pod.busy_until = now
            if pod.gone:
                del self._pods[pod.id]
        self._changed()

    def _expire(self, ticket: Ticket, now: float) -> None:
        self.end(ticket, Outcome.EXPIRED, now, Reason.DEADLINE_EXCEEDED)
        self._ended(ticket)

    def _changed(self) -> None:
        self._forecast = None
