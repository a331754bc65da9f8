"""A ledger that notes every call that changes it, and what came of it.

One line a decision: the request, the answer with every number behind it, and in `before` the
other calls since the line before, each a list of a word, the time and its arguments. Times are
those of the clock that the driver hands in; tickets are named by their sequence. A call that takes
no time, as of pods that come and go, has the time at which it was made, where there is a clock.

    {"t": 12.5, "request": {"id": "a-1", "prompt_tokens": 64, "output_tokens": 16, ...},
     "answer": "running", "ticket": 7, "pod": "127.0.0.1:8000/x", "wait": 0.0, "service": 0.142,
     ..., "before": [["token", 12.49, 6, 1], ...]}

A `checkpoint` line holds everything that the ledger knows: a reader can begin there, and one that
comes from before can compare. Random numbers begin again there from a seed that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, TypeVar

from punctual_admission.forecast import Forecast
from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import Policy
from punctual_admission.pool import Foreign, Pod
from punctual_admission.recording.codec import encode
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Prediction, Refusal, Request, Ticket

FORMAT = 2
MOST_PENDING = 500
"""Calls without a decision after which a line is written for them alone."""
NOT_STATE = frozenset({"_ended", "_rng", "_forecast", "_tape", "pods"})
"""What a ledger holds beside its knowledge: its listener, its random numbers, caches."""

_NUMBERS = tuple(field.name for field in fields(Prediction))
_REQUEST = tuple(field.name for field in fields(Request))

Line = dict[str, Any]
Clock = Callable[[], float | None]
_L = TypeVar("_L", bound=Ledger)


class Sink(Protocol):
    """Takes the lines."""

    @property
    def checkpoint_due(self) -> bool:
        """Whether a checkpoint is wanted after the next line."""
        ...

    def put(self, line: Line) -> None:
        """Take a line; it is the sink's from then on."""
        ...


class _Tape:
    """What is noted between two lines."""

    __slots__ = ("clock", "draining", "ended", "inside", "listener", "pending", "sink")

    def __init__(self, ledger: Ledger, sink: Sink, clock: Clock) -> None:
        self.sink, self.clock = sink, clock
        self.listener = ledger._ended  # noqa: SLF001  # the recorder is a part of the ledger
        self.draining = ledger.draining
        self.pending: list[list[Any]] = []
        self.ended: list[list[Any]] = []
        self.inside = False
        """Whether a call is under way, whose own inner calls are not to be noted."""

    def on_ended(self, ticket: Ticket) -> None:
        """The ledger has ended a ticket by itself."""
        self.ended.append([ticket.sequence, ticket.outcome, ticket.reason])
        self.listener(ticket)

    def take_ended(self) -> list[list[Any]]:
        """Those that were ended in the call that returns now."""
        ended, self.ended = self.ended, []
        return ended


class RecordingLedger(Ledger):
    """Made out of a ledger by `record`; says everything to its sink."""

    _tape: _Tape

    # --- requests ----------------------------------------------------------------------------

    def offer(self, request: Request, now: float) -> Ticket | Refusal:
        """Decide, and write the decision down."""
        tape = self._tape
        if self.draining is not tape.draining:
            tape.draining = self.draining
            self._note(now, "drain", self.draining)
        tape.inside = True
        try:
            answer = super().offer(request, now)
        finally:
            tape.inside = False
        line = decision_line(request, now, answer, tape.take_ended())
        if tape.pending:
            line["before"], tape.pending = tape.pending, []
        self._put(line, now)
        return answer

    def next_start(self, now: float) -> Ticket | None:
        """Start the next in the queue, as `Ledger`."""
        if not self._queue:
            return None
        self._tape.inside = True
        try:
            ticket = super().next_start(now)
        finally:
            self._tape.inside = False
        ended = self._tape.take_ended()
        # with peers, also a vain call counts: from when on a slot is left to somebody else
        if ticket is not None or ended or self._peers:
            started = None if ticket is None else [ticket.sequence, ticket.pod]
            self._note(now, "start", started, ended)
        return ticket

    def progressed(self, ticket: Ticket, now: float, tokens: int = 1) -> None:
        """Tokens have come, as `Ledger`."""
        super().progressed(ticket, now, tokens)
        self._note(now, "token", ticket.sequence, tokens)

    def complete(self, ticket: Ticket, now: float) -> Outcome:
        """The whole answer has come, as `Ledger`."""
        self._tape.inside = True
        try:
            outcome = super().complete(ticket, now)
        finally:
            self._tape.inside = False
        self._note(now, "complete", ticket.sequence, outcome)
        return outcome

    def end(
        self, ticket: Ticket, outcome: Outcome, now: float, reason: Reason | None = None
    ) -> None:
        """End a ticket, as `Ledger`."""
        super().end(ticket, outcome, now, reason)
        if not self._tape.inside:
            self._note(now, "end", ticket.sequence, outcome, reason)

    def requeue(self, ticket: Ticket, now: float, pause_pod: float = 0.0) -> None:
        """Put a ticket back, as `Ledger`."""
        super().requeue(ticket, now, pause_pod)
        self._note(now, "requeue", ticket.sequence, pause_pod)

    def wake(self, now: float) -> None:
        """Drop whoever has waited past its deadline, as `Ledger`."""
        self._tape.inside = True
        try:
            super().wake(now)
        finally:
            self._tape.inside = False
        ended = self._tape.take_ended()
        if ended or self._peers:
            self._note(now, "wake", ended)

    # --- pods and policy ---------------------------------------------------------------------

    def join_pod(self, pod_id: str, model: ServiceModel, now: float, ratio: float = 1.0) -> Pod:
        """A pod came, as `Ledger`."""
        pod = super().join_pod(pod_id, model, now, ratio)
        self._note(now, "join", pod_id, encode(model), ratio)
        return pod

    def suspend_pod(self, pod_id: str) -> None:
        """A pod's state is unknown, as `Ledger`."""
        super().suspend_pod(pod_id)
        self._note(self._tape.clock(), "suspend", pod_id)

    def leave_pod(self, pod_id: str) -> Sequence[Ticket]:
        """A pod is gone, as `Ledger`."""
        running = super().leave_pod(pod_id)
        self._note(self._tape.clock(), "leave", pod_id)
        return running

    def observe_foreign(self, pod_id: str, foreign: Iterable[Foreign]) -> None:
        """What a pod runs for others, as `Ledger`."""
        seen = tuple(foreign)
        super().observe_foreign(pod_id, seen)
        self._note(self._tape.clock(), "foreign", pod_id, encode(seen))

    def observe_peer(
        self,
        peer: str,
        waiting: Iterable[Request],
        running: Mapping[str, Sequence[Foreign]],
        now: float,
    ) -> None:
        """What another gateway holds, as `Ledger`."""
        seen = list(waiting)
        super().observe_peer(peer, seen, running, now)
        runs = {pod_id: list(foreign) for pod_id, foreign in running.items()}
        self._note(now, "peer", peer, encode(seen), encode(runs))

    def lose_peer(self, peer: str) -> None:
        """Another gateway has gone, as `Ledger`."""
        super().lose_peer(peer)
        self._note(self._tape.clock(), "lose", peer)

    def observe_memory(self, pod_id: str, tokens: int | None) -> None:
        """How much memory a pod has, as `Ledger`."""
        super().observe_memory(pod_id, tokens)
        self._note(self._tape.clock(), "memory", pod_id, tokens)

    def apply_policy(self, policy: Policy) -> None:
        """Swap the policy, as `Ledger`."""
        super().apply_policy(policy)
        self._note(self._tape.clock(), "policy", encode(policy))

    # --- reads that leave a trace ------------------------------------------------------------

    def forecast(self, now: float) -> Forecast:
        """As `Ledger`: a forecast may be used again, so who asked first sets its time."""
        before = self._forecast
        found = super().forecast(now)
        if found is not before and not self._tape.inside:
            self._note(now, "view")
        return found

    def held(self, request: Request, now: float) -> float:
        """As `Ledger`: credits are earned up to the time of asking."""
        if not self._tape.inside:
            self._note(now, "held", request_fields(request))
        return super().held(request, now)

    def regret(self, request: Request, cost: float, wait: float, now: float) -> float:
        """As `Ledger`: what is known of the shorter ones is renewed by whoever asks."""
        if not self._tape.inside:
            self._note(now, "regret", request_fields(request), cost, wait)
        return super().regret(request, cost, wait, now)

    def jitter(self) -> float:
        """As `Ledger`: the next random number."""
        if not self._tape.inside:
            self._note(None, "jitter")
        return super().jitter()

    # --- writing -----------------------------------------------------------------------------

    def checkpoint(self, now: float | None = None) -> Line:
        """Everything that this ledger knows; its random numbers begin anew."""
        seed = self._rng.getrandbits(53)
        self._rng.seed(seed)
        self._forecast = None
        return {"checkpoint": FORMAT, "t": now, "seed": seed, "state": encode_state(self)}

    def flush(self, now: float | None = None) -> None:
        """Write what was noted since the last decision."""
        if self._tape.pending:
            pending, self._tape.pending = self._tape.pending, []
            self._put({"t": now, "before": pending}, now)

    def _note(self, now: float | None, word: str, *values: Any) -> None:
        self._tape.pending.append([word, now, *values])
        if len(self._tape.pending) >= MOST_PENDING:
            self.flush(now)

    def _put(self, line: Line, now: float | None) -> None:
        sink = self._tape.sink
        sink.put(line)
        if sink.checkpoint_due:
            sink.put(self.checkpoint(now))


def decision_line(
    request: Request, now: float, answer: Ticket | Refusal, ended: Sequence[Sequence[Any]]
) -> Line:
    """One decision as it is written; `ended` are the tickets that were ended for it."""
    line: Line = {"t": now, "request": request_fields(request)}
    if isinstance(answer, Refusal):
        line |= {"answer": "refused", "reason": answer.reason, "retry_after": answer.retry_after}
        line["retry_may_help"] = answer.retry_may_help
        if answer.offer is not None:
            line["offer"] = [answer.offer.output_tokens, answer.offer.budget]
    else:
        line |= {"answer": answer.outcome or answer.state, "ticket": answer.sequence}
        line |= {"pod": answer.pod, "cost": answer.cost, "would_refuse": answer.would_refuse}
    if ended:
        line["ended"] = ended
    prediction = answer.prediction
    for name in _NUMBERS:
        line[name] = getattr(prediction, name)
    return line


def request_fields(request: Request) -> Line:
    """A request by the names of its fields; texts that are empty are left out."""
    given = {name: getattr(request, name) for name in _REQUEST}
    return {name: one for name, one in given.items() if one != ""}


def encode_state(ledger: Ledger) -> Any:
    """What a ledger knows, as JSON."""
    return encode({name: one for name, one in vars(ledger).items() if name not in NOT_STATE})


def record(ledger: Ledger, sink: Sink, clock: Clock = lambda: None) -> RecordingLedger:
    """The same ledger, to be used instead of `ledger`, from now on writing to `sink`.

    `clock` is the one whose times the driver hands in; None from it: no time.
    """
    recording = _adopt(ledger, RecordingLedger)
    tape = recording._tape = _Tape(ledger, sink, clock)  # noqa: SLF001
    recording._ended = tape.on_ended  # noqa: SLF001
    sink.put(recording.checkpoint())
    return recording


def stop(recording: RecordingLedger) -> Ledger:
    """The same ledger, to be used instead of `recording`, no longer writing."""
    recording.flush()
    plain = _adopt(recording, Ledger)
    plain._ended = recording._tape.listener  # noqa: SLF001
    del vars(plain)["_tape"]
    return plain


def _adopt(ledger: Ledger, kind: type[_L]) -> _L:
    adopted = kind.__new__(kind)
    vars(adopted).update(vars(ledger))
    return adopted
