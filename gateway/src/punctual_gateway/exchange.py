"""The way of one request through the gateway.

    parse -> estimate -> offer -> (refusal | wait for start) -> dispatch -> stream -> finish

Whatever happens on the way, a client that leaves included (its task is cancelled wherever it
waits), the ticket ends once, in `Exchange.run`'s `finally`, without a wait in between.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import Enforcement, Objective, Overdue
from punctual_admission.ticket import Refusal, Request, State, Ticket
from punctual_gateway import errors
from punctual_gateway.answers import WholeAnswer
from punctual_gateway.body import check_length, read_body
from punctual_gateway.call import Call, Route, parse_call
from punctual_gateway.callers import accepts_shorter, client_of, tier_of
from punctual_gateway.deadlines import header_deadline, smaller
from punctual_gateway.lengths import expected_headers
from punctual_gateway.relay import Relay, StreamRelay, WholeRelay, whole
from punctual_gateway.upstream import (
    PASSED_HEADERS,
    Declined,
    Fault,
    Rejection,
    Upstream,
    UpstreamError,
)

if TYPE_CHECKING:
    from aiohttp import web

    from punctual_gateway.gateway import Gateway
    from punctual_gateway.sse import Event

MOST_DISPATCHES = 4
"""Times a request is sent to pods, pods that sent it back undone included."""
GRACE = 0.05
"""Seconds after the deadline that a pod which knows the deadline has to say so itself."""
BYTES_PER_TOKEN = 4
"""Of a body that is not read, for a guess at its work."""
LONGEST_UNDECIDED = 65_536
"""Bytes: a longer body is not waited for when even the smallest request would be refused."""
SUSPENDING = frozenset({"draining", "not_ready", "model_not_found", "engine_dead"})
"""What a pod says when it is of no use for anybody until further notice."""


class TurnedAway(Exception):  # noqa: N818  # a decision, not a fault
    """Refused before its long body was read."""

    def __init__(self, refusal: Refusal, request: Request) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal
        self.request = request


class Exchange:
    """One request. `arrival` is when its first byte came, in monotonic seconds."""

    def __init__(
        self, gateway: Gateway, http: web.BaseRequest, route: Route, arrival: float, name: str
    ) -> None:
        self._gateway = gateway
        self._scheduler = gateway.scheduler
        self._http = http
        self._route = route
        self._arrival = arrival
        self._name = name
        self._policy = gateway.policy
        self._new = False
        """Whether this counted as new demand: it is no retry."""

    async def run(self) -> web.StreamResponse:
        """Answer the request; raises RequestError when it is wrong."""
        try:
            call = await self._parse()
        except TurnedAway as turned:
            return self._refuse(turned.refusal, turned.request)
        request = self._estimate(call)
        answer = self._offer(request, call)
        if isinstance(answer, Refusal):
            return self._refuse(answer, request)
        ticket = answer
        try:
            return await self._serve(call, ticket)
        finally:
            # Still open only if the client left, or something here is broken.
            self._scheduler.end(ticket, Outcome.CANCELLED)
            self._gateway.count_end(ticket, new=self._new)

    # --- parse, estimate, offer --------------------------------------------------------------

    async def _parse(self) -> Call:
        gateway, http, limits = self._gateway, self._http, self._policy.requests
        length = check_length(http, limits.maximum_body_bytes)
        header = header_deadline(http.headers)
        if length > LONGEST_UNDECIDED:
            self._refuse_early(header)
        body = await read_body(http, limits.maximum_body_bytes, gateway.settings.body_timeout)
        # The policy may have changed while a slow body came.
        self._policy = gateway.policy
        call = parse_call(self._route, body, self._policy, gateway.counter, gateway.pods.context)
        call.deadline_ms = smaller(header, call.deadline_ms)
        call.accepts_shorter = accepts_shorter(http.headers)
        return call

    def _refuse_early(self, deadline_ms: int | None) -> None:
        """Raise TurnedAway when the smallest request with this deadline would be refused."""
        longest = self._policy.deadline.maximum_milliseconds
        asked = (longest if deadline_ms is None else deadline_ms) / 1000
        smallest = self._build_request(1, 1, asked)
        answer = self._scheduler.try_offer(smallest)
        if answer is not None:
            self._count_arrival(self._guess(), answer)
            raise TurnedAway(answer, smallest)

    def _guess(self) -> Request:
        """What a request whose body is not read probably asks for."""
        prompt_tokens = (self._http.content_length or 0) // BYTES_PER_TOKEN
        tokens = self._policy.requests.default_max_tokens
        return Request(self._name, prompt_tokens, tokens, self._arrival, self._arrival)

    def _estimate(self, call: Call) -> Request:
        asked = call.deadline_ms
        seconds = None if asked is None else asked / 1000
        return self._build_request(call.prompt_tokens, call.max_tokens, seconds)

    def _build_request(self, prompt: int, tokens: int, seconds: float | None) -> Request:
        policy, arrival = self._policy, self._arrival
        tier = tier_of(policy, self._http.headers)
        deadline = arrival + policy.budget(seconds, tier)
        group = f"{self._route} {tier}"
        client = client_of(policy, self._http)
        return Request(self._name, prompt, tokens, arrival, deadline, group, tier, client)

    def _offer(self, request: Request, call: Call) -> Ticket | Refusal:
        if call.deadline_ms == 0 and self._policy.enforcement is Enforcement.ENFORCE:
            answer: Ticket | Refusal = self._scheduler.refuse(request, Reason.DEADLINE_UNREACHABLE)
        else:
            answer = self._scheduler.offer(request, shorter=call.accepts_shorter)
        self._count_arrival(request, answer)
        if isinstance(answer, Ticket) and answer.request.output_tokens < call.max_tokens:
            call.shorten(answer.request.output_tokens)
            self._gateway.metrics.shortened.add()
        return answer

    def _count_arrival(self, request: Request, answer: Ticket | Refusal) -> None:
        """New demand, unless a client asks for more than its quota: that needs no more pods."""
        if isinstance(answer, Ticket) or answer.reason is not Reason.CLIENT_QUOTA_EXCEEDED:
            self._new = self._gateway.count_arrival(request, self._http.headers)

    def _refuse(self, refused: Refusal, request: Request) -> WholeAnswer:
        failure = errors.refusal(refused, self._policy)
        fields = (
            ("X-Request-Id", self._name),
            ("X-Punctual-Deadline-Ms", str(round(request.budget * 1000))),
            *failure.headers,
        )
        seconds = self._scheduler.now - self._arrival
        self._gateway.count_refusal(refused, seconds, new=self._new, tier=request.tier)
        close = refused.reason is Reason.DRAINING or not self._http.content.is_eof()
        return WholeAnswer(failure.status, failure.body, fields, close=close)

    # --- wait, dispatch ----------------------------------------------------------------------

    async def _serve(self, call: Call, ticket: Ticket) -> web.StreamResponse:
        def fields(complete: bool) -> list[tuple[str, str]]:
            return self._fields(call, ticket, complete)

        relay: Relay = StreamRelay(self._http, fields) if call.stream else WholeRelay(call, fields)
        while True:
            await self._scheduler.wait_started(ticket)
            if ticket.state is State.ENDED:
                return whole(errors.dropped(ticket, self._scheduler.now), fields(True))
            try:
                return await self._dispatch(call, ticket, relay)
            except Declined as declined:
                self._take_back(ticket, declined.code)
            except UpstreamError as error:
                if not self._may_retry(ticket, error):
                    self._scheduler.end(ticket, Outcome.FAILED)
                    self._gateway.count_fault(error.fault)
                    return await relay.fail(errors.failed(str(error), error.fault.value))
                self._gateway.metrics.retries.add()
                self._scheduler.requeue(ticket)

    def _take_back(self, ticket: Ticket, code: str) -> None:
        """The pod did nothing: back into the decision (M8)."""
        self._gateway.count_declined(code)
        if code in SUSPENDING:
            self._gateway.suspend(ticket.pod, f"it said {code}")
        if ticket.dispatches >= MOST_DISPATCHES:
            self._scheduler.end(ticket, Outcome.EXPIRED, Reason.DEADLINE_EXCEEDED)
        else:
            self._scheduler.requeue(ticket)

    def _may_retry(self, ticket: Ticket, error: UpstreamError) -> bool:
        """Not one byte came, another pod or a new connection is there, and time and budget too."""
        if error.fault is Fault.UNREACHABLE:
            self._gateway.suspend(ticket.pod, str(error))
        return (
            not error.answered
            and error.fault in (Fault.UNREACHABLE, Fault.RESET)
            and ticket.dispatches < MOST_DISPATCHES
            and bool(self._scheduler.ledger.pods)
            and self._scheduler.now < ticket.request.deadline
            and self._gateway.retry_budget.try_retry()
        )

    async def _dispatch(self, call: Call, ticket: Ticket, relay: Relay) -> web.StreamResponse:
        monitor = self._gateway.pods.find(ticket.pod or "")
        if monitor is None:
            raise UpstreamError(Fault.UNREACHABLE, "the pod has gone")
        cuts = self._cuts
        left = ticket.request.deadline - self._scheduler.now
        if cuts and left <= 0:
            self._scheduler.end(ticket, Outcome.EXPIRED, Reason.DEADLINE_EXCEEDED)
            return whole(
                errors.dropped(ticket, self._scheduler.now), self._fields(call, ticket, True)
            )
        upstream = Upstream(self._gateway.connections, monitor.address)
        own, pod_id = self._gateway.own_work, ticket.pod or ""
        own.sent(self._name)
        if ticket.dispatches == 1:
            self._gateway.retry_budget.dispatched()
        grace = GRACE if monitor.speaks_capacity else 0.0
        try:
            async with asyncio.timeout(left + grace if cuts else None) as cut:
                headers = self._headers(left if cuts else None) | expected_headers(ticket)
                await upstream.open(self._route.value, call.upstream_body(), headers)
                return await self._stream(ticket, upstream, relay, cut)
        except TimeoutError:
            self._scheduler.end(ticket, Outcome.LATE)
            return await relay.fail(errors.late(ticket, self._scheduler.now))
        except Rejection as rejection:
            return self._reject(call, ticket, rejection)
        finally:
            upstream.close()
            own.ended(self._name, pod_id, self._scheduler.now)

    @property
    def _cuts(self) -> bool:
        """Whether running work is stopped at its deadline."""
        policy = self._policy
        return policy.overdue is Overdue.CANCEL and policy.enforcement is Enforcement.ENFORCE

    def _headers(self, left: float | None) -> dict[str, str]:
        sent = self._http.headers
        headers = {name: sent[name] for name in PASSED_HEADERS if name in sent}
        headers["X-Request-Id"] = self._name
        if left is not None and self._policy.objective is Objective.COMPLETION:
            headers["X-Punctual-Remaining-Ms"] = str(max(int(left * 1000), 0))
        return headers

    def _reject(self, call: Call, ticket: Ticket, rejection: Rejection) -> WholeAnswer:
        if rejection.code == "model_not_found":
            # The call was checked against the policy: the address serves something else now.
            raise Declined("model_not_found") from rejection
        self._scheduler.end(ticket, Outcome.FAILED)
        self._gateway.count_rejection(rejection.status)
        return WholeAnswer(rejection.status, rejection.body, self._fields(call, ticket, True))

    # --- stream, finish ----------------------------------------------------------------------

    async def _stream(
        self, ticket: Ticket, upstream: Upstream, relay: Relay, cut: asyncio.Timeout
    ) -> web.StreamResponse:
        finish: str | None = None
        while events := await upstream.read():
            finish = self._account(ticket, events) or finish
            if events[-1].done or finish == "deadline":
                break
            if finish is None and self._policy.objective is Objective.FIRST_TOKEN:
                cut.reschedule(None)
            await relay.take(events)
        if finish is None:
            raise UpstreamError(Fault.RESET, "the pod's answer broke off", answered=True)
        if finish == "deadline":
            return await self._end_late(ticket, relay, events)
        self._scheduler.complete(ticket)
        if events:
            await relay.take(events)
        return await relay.finish()

    def _account(self, ticket: Ticket, events: list[Event]) -> str | None:
        """Book the tokens; the finish reason, if one came."""
        finish = None
        tokens = 0
        for event in events:
            if (error := event.error) is not None:
                raise UpstreamError(
                    Fault.ERROR, f"the pod reported: {error.get('message')}", answered=True
                )
            tokens += event.tokens
            finish = event.finish_reason or finish
        if tokens:
            self._scheduler.progressed(ticket, tokens)
        return finish

    async def _end_late(
        self, ticket: Ticket, relay: Relay, events: list[Event]
    ) -> web.StreamResponse:
        """The pod itself stopped at the deadline."""
        self._scheduler.end(ticket, Outcome.LATE)
        if relay.begun:
            await relay.take(events)
            return await relay.finish()
        return await relay.fail(errors.late(ticket, self._scheduler.now))

    def _fields(self, call: Call, ticket: Ticket, complete: bool) -> list[tuple[str, str]]:
        """Headers that say what was promised and what it took."""
        now, prediction = self._scheduler.now, ticket.prediction
        started = ticket.started or now
        queue, service = (started - self._arrival) * 1000, (now - started) * 1000
        timing = "service" if complete else "first_token"
        fields = [
            ("X-Request-Id", self._name),
            ("Server-Timing", f"queue;dur={queue:.2f}, {timing};dur={service:.2f}"),
            ("X-Queue-Predict-Wait", f"{prediction.wait:.4f}"),
            ("X-Punctual-Predicted-Ms", f"{(prediction.spent + prediction.sojourn) * 1000:.1f}"),
            ("X-Punctual-Deadline-Ms", str(round(prediction.budget * 1000))),
        ]
        if call.shortened_from is not None:
            fields.append(("X-Punctual-Shortened-From", str(call.shortened_from)))
        if call.clamped or call.shortened_from is not None:
            fields.append(("X-Punctual-Max-Tokens", str(call.max_tokens)))
        if ticket.scouts:
            fields.append(("X-Punctual-Promise", "none"))
        if ticket.would_refuse is not None:
            fields.append(("X-Punctual-Would-Refuse", ticket.would_refuse.value))
        return fields
