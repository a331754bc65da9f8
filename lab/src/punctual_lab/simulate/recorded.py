"""What a decision log tells of a run, and a world that plays it on virtual time.

The log is lived again (see `punctual_admission.recording`), which checks each decision and leaves
the tickets as they were. From them come the arrivals, when each was decided, how long its service
really took and how many tokens it had. In the world queue, pods, estimator and margin are
simulated from that; only arrivals, true service times, pods that come and go, clients that leave
and swaps of the policy are the log's.

On a pod with one slot each token takes the time that it took, counted from the end of the service
before it where there was one, so that errors do not add up. On a pod with several a service takes
`slow` times what the published model says for it in the company that it has. Who was not served
takes the median of the last `RECENT` served, and uses as much of its `max_tokens` as the last one
that ended did.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.recording.codec import decode
from punctual_admission.recording.player import Player, load_ledger
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Request, State, Ticket
from punctual_lab.measures import median
from punctual_lab.simulate.engine import Engine
from punctual_lab.simulate.world import Arrival, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from punctual_admission.policy import Policy
    from punctual_admission.recording.recorder import Line
    from punctual_lab.simulate.world import Record

RECENT = 5
AT_ONCE = 0.01
"""A start at most so many seconds after an end on the same pod was for the place left by it."""
SHORTEST = 1e-9
UNFAITHFUL = frozenset({Outcome.CANCELLED, Outcome.FAILED})
"""Ends that came from outside: they come at the same time again."""


@dataclass(slots=True)
class Visit:
    """One decided request of the log; times in seconds of the gateway's clock."""

    request: Request
    decided: float
    outcome: Outcome | None = None
    """None where the log ends before the request does."""
    reason: Reason | None = None
    ended: float | None = None
    ticket: Ticket | None = None
    """As it was at its end; None where there was none."""
    completed: bool = False
    """Whether its answer came whole."""
    begun: float = 0.0
    """When its pod was free for it."""
    token_times: list[float] = field(default_factory=list)
    lag: float = 0.0
    """From its end to the start of the next in the queue."""

    @property
    def slow(self) -> float | None:
        """Actual over modelled service time; None where it cannot be told."""
        ticket = self.ticket
        if ticket is None or self.ended is None or not ticket.generated:
            return None
        return (self.ended - ticket.started) / ticket.expected_service

    @property
    def gaps(self) -> list[float]:
        """Seconds that each token of a completed answer took, the first from `begun`."""
        if not self.completed or self.ended is None:
            return []
        times = [self.begun, *self.token_times[:-1], self.ended]
        return [max(after - before, SHORTEST) for before, after in pairwise(times)]

    @property
    def tokens(self) -> int | None:
        """Tokens of a completed answer."""
        return self.ticket.generated if self.ticket is not None and self.completed else None


@dataclass(frozen=True, slots=True)
class Change:
    """Something that came to pods or policy from outside: the call's word and its arguments."""

    at: float
    word: str
    values: tuple[Any, ...]


@dataclass(slots=True)
class History:
    """A log, read to its end or to its first difference."""

    checkpoint: Line
    begin: float
    player: Player
    visits: list[Visit] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing and every decision was made again as logged."""
        return not self.player.differences and not self.player.dropped


CHANGES = frozenset({"join", "leave", "suspend", "foreign", "memory", "policy", "drain"})


def read_history(lines: Iterable[Line]) -> History:
    """Live a log again. Raises ValueError for a log without a checkpoint, LogError for nonsense."""
    reader = _Reader()
    for line in lines:
        reader.take(line)
    if reader.history is None:
        raise ValueError("a decision log must have a checkpoint, and this one has none")
    return reader.history


class _Reader:
    def __init__(self) -> None:
        self.history: History | None = None
        self._player = Player()
        self._open: dict[int, Visit] = {}
        self._now: float | None = None
        self._freed: dict[str, Visit] = {}
        """By pod, the last one that was completed there."""

    def take(self, line: Line) -> None:
        self._player.feed(line)
        if self.history is None:
            if "checkpoint" in line:
                self.history = History(line, 0.0, self._player)
            return
        for call in line.get("before", ()):
            self._take_call(self.history, *call)
        if "request" in line:
            self._take_decision(self.history, line)

    def _take_call(self, history: History, word: str, now: float | None, *values: Any) -> None:
        self._now = self._now if now is None else now
        if self._now is None:
            return
        if word in CHANGES:
            history.changes.append(Change(self._now, word, values))
        elif word == "token":
            self._take_tokens(*values)
        elif word == "complete":
            self._complete(*values)
        elif word == "end":
            self._end(*values)
        elif word == "start":
            for ended in values[1]:
                self._end(*ended)
            if values[0] is not None:
                self._start(*values[0])
        elif word == "wake":
            for ended in values[0]:
                self._end(*ended)

    def _start(self, sequence: int, pod: str) -> None:
        visit, freed = self._open.get(sequence), self._freed.pop(pod, None)
        if visit is None or self._now is None:
            return
        visit.begun, visit.token_times = self._now, []
        if freed is not None and freed.ended is not None and self._now - freed.ended < AT_ONCE:
            visit.begun, freed.lag = freed.ended, self._now - freed.ended

    def _take_tokens(self, sequence: int, tokens: int) -> None:
        visit = self._open.get(sequence)
        if visit is not None and self._now is not None:
            visit.token_times += [self._now] * tokens

    def _complete(self, sequence: int, outcome: str) -> None:
        visit = self._open.get(sequence)
        self._end(sequence, outcome, None)
        if visit is not None and visit.ticket is not None:
            visit.completed = True
            self._freed[visit.ticket.pod or ""] = visit

    def _take_decision(self, history: History, line: Line) -> None:
        self._now = line["t"]
        if not history.visits:
            history.begin = min([line["t"], *(change.at for change in history.changes)])
        for ended in line.get("ended", ()):
            if ended[0] != line.get("ticket"):
                self._end(*ended)
        visit = Visit(Request(**line["request"]), line["t"], begun=line["t"])
        history.visits.append(visit)
        if line["answer"] in (State.QUEUED, State.RUNNING):
            self._open[line["ticket"]] = visit
            visit.ticket = self._player.tickets.get(line["ticket"])
            return
        visit.outcome, visit.ended = Outcome(line["answer"]), line["t"]
        refused = visit.outcome is Outcome.REFUSED
        visit.reason = Reason(line["reason"]) if refused else Reason.DEADLINE_EXCEEDED

    def _end(self, sequence: int, outcome: str, reason: str | None) -> None:
        visit = self._open.pop(sequence, None)
        if visit is not None:
            visit.outcome, visit.ended = Outcome(outcome), self._now
            visit.reason = None if reason is None else Reason(reason)


@dataclass(slots=True, unsafe_hash=True)
class RecordedArrival(Arrival):
    """An arrival with its name, and how long the gateway had it before it decided (seconds)."""

    name: str = ""
    group: str = ""
    tier: str = ""
    client: str = ""
    spent: float = 0.0


def build_arrivals(history: History, budget: float | None = None) -> list[RecordedArrival]:
    """The log's requests as arrivals at the times of their decisions.

    `budget` replaces every deadline, in seconds.
    """
    recent: deque[float] = deque([1.0], maxlen=RECENT)
    share, arrivals = 1.0, []
    for visit in history.visits:
        request = visit.request
        slow, tokens = visit.slow, visit.tokens
        if slow is not None:
            recent.append(slow)
        if tokens is not None:
            share = tokens / request.output_tokens
        guess = max(round(share * request.output_tokens), 1)
        arrivals.append(
            RecordedArrival(
                at=visit.decided,
                prompt_tokens=request.prompt_tokens,
                max_tokens=request.output_tokens,
                budget=request.budget if budget is None else budget,
                output_tokens=guess if tokens is None else tokens,
                slow=median(list(recent)) if slow is None else slow,
                name=request.id,
                group=request.group,
                tier=request.tier,
                client=request.client,
                spent=visit.decided - request.arrival,
            )
        )
    return arrivals


class RecordedEngine(Engine[Ticket]):
    """An engine whose one slot makes each token in the time that it took in the log."""

    def __init__(
        self, model: ServiceModel, gaps: dict[str, list[float]], *, whole: bool = False
    ) -> None:
        super().__init__(model, _no_noise if model.slots == 1 else None)
        self._gaps, self._whole = gaps, whole
        self._job: object = None
        self._left: list[float] = []

    @property
    def running(self) -> Ticket | None:
        """The one that has the slot, after its first token."""
        return next(iter(self._running), None)

    def _factor(self) -> float:
        """Asked once for each token; makes up for the job's own slowness."""
        job = self._prefilling or next(iter(self._running.values()))
        plain = self.model.step(1)
        if job is not self._job:
            plain = self.model.prefill(job.prompt_tokens)
            self._job, self._left = job, self._gaps_of(job.key.request, plain)
        if self.model.slots > 1 or not self._left or not plain:
            return super()._factor()
        return self._left.pop() / (plain * job.slow)

    def _gaps_of(self, request: Request, prefill: float) -> list[float]:
        """Seconds of each token, the last one first; empty where the log has none."""
        gaps = self._gaps.get(request.id, [])
        if self._whole and gaps:
            plain = [prefill, *[self.model.step(1)] * (len(gaps) - 1)]
            factor = sum(gaps) / sum(plain)
            gaps = [one * factor for one in plain]
        return gaps[::-1]


def _no_noise() -> float:
    return 1.0


class RecordedWorld(World):
    """Plays a history; `pods` and `slots` replace the log's pods, `alter` changes every policy."""

    def __init__(
        self,
        history: History,
        *,
        pods: int | None = None,
        slots: int | None = None,
        alter: Callable[[Policy], Policy] = lambda policy: policy,
        whole: bool = False,
    ) -> None:
        """`whole`: of each service only its whole time is kept, not that of each token."""
        ledger = load_ledger(history.checkpoint, self._on_ended)
        super().__init__(ledger.policy, [])
        self.now = history.begin
        self.ledger = ledger
        self._history, self._alter = history, alter
        self._lags = {visit.request.id: visit.lag for visit in history.visits}
        self._gaps = {visit.request.id: visit.gaps for visit in history.visits}
        self._whole = whole
        self._lag = 0.0
        self._pods, self._slots = pods, slots
        self._rest: Engine[Ticket] = Engine(ServiceModel((1.0,)))
        """Never works: there is always an engine to ask."""
        self._engines = [self._rest]
        self._drop_open()
        for pod in ledger.all_pods:
            self._join(pod.id, pod.model, pod.speed.value)
        ledger.apply_policy(alter(ledger.policy))
        for change in history.changes:
            self.at(change.at, partial(self._change, change))
        for visit in history.visits:
            if visit.outcome in UNFAITHFUL and visit.ended is not None:
                self.at(visit.ended, partial(self._leave, visit))

    def play(self, budget: float | None = None) -> list[Record]:
        """One record a visit, in the order of the log."""
        return self.run(build_arrivals(self._history, budget))

    def _build_request(self, arrival: Arrival) -> Request:
        if not isinstance(arrival, RecordedArrival):
            return super()._build_request(arrival)
        begun = self.now - arrival.spent
        return Request(
            arrival.name, arrival.prompt_tokens, arrival.max_tokens, begun, begun + arrival.budget,
            arrival.group, arrival.tier, arrival.client,
        )  # fmt: skip

    def _put_engine(self, name: str, model: ServiceModel) -> None:
        known = self.engines.get(name)
        if known is None or (known.model.slots == 1) != (model.slots == 1):
            self.engines[name] = RecordedEngine(model, self._gaps, whole=self._whole)
        else:
            known.model = model

    def _advance(self, engine: Engine[Ticket]) -> None:
        ticket = engine.running if isinstance(engine, RecordedEngine) else None
        self._lag = 0.0 if ticket is None else self._lags.get(ticket.request.id, 0.0)
        super()._advance(engine)
        self._lag = 0.0

    def _start_all(self) -> None:
        """Start whoever can, as long after an end as in the log."""
        while (ticket := self.ledger.next_start(self.now + self._lag)) is not None:
            self._dispatch(ticket)

    def _on_ended(self, ticket: Ticket) -> None:
        if ticket.request.id in self._by_id:
            super()._on_ended(ticket)

    def _drop_open(self) -> None:
        """Requests that were under way at the log's begin: their true lengths are not in it."""
        ledger = self.ledger
        running = [t for pod in ledger.all_pods for t in pod.residents.values()]
        for ticket in (*ledger.queue, *running):
            ledger.end(ticket, Outcome.CANCELLED, self.now)

    def _change(self, change: Change) -> None:
        self._sync()
        ledger, values = self.ledger, change.values
        if change.word == "join":
            self._join(values[0], decode(values[1]), values[2])
        elif change.word == "policy":
            ledger.apply_policy(self._alter(decode(values[0])))
        elif change.word == "drain":
            ledger.draining = values[0]
        elif self._pods is None:
            self._change_pod(change.word, *values)
        self._start_all()

    def _change_pod(self, word: str, pod_id: str, *values: Any) -> None:
        if word == "leave":
            self.ledger.leave_pod(pod_id)
        elif word == "suspend":
            self.ledger.suspend_pod(pod_id)
        elif word == "foreign":
            self.ledger.observe_foreign(pod_id, decode(values[0]))
        else:
            self.ledger.observe_memory(pod_id, values[0])

    def _join(self, pod_id: str, model: ServiceModel, ratio: float) -> None:
        if self._slots is not None:
            model = resize(model, self._slots)
        names: Sequence[str] = [pod_id]
        if self._pods is not None:
            names = [f"pod-{index}" for index in range(self._pods)]
        for name in names:
            self.ledger.join_pod(name, model, self.now, ratio)
            known = self.engines.get(name)
            if known is None or known.model != model:
                self._put_engine(name, model)
        self._engines = [*self.engines.values()] or [self._rest]

    def _leave(self, visit: Visit) -> None:
        """The client left, or the answer broke off, when it did in the log."""
        record = self._by_id.get(visit.request.id)
        ticket = None if record is None else record.ticket
        if record is None or ticket is None or ticket.state is State.ENDED:
            return
        self._sync()
        if ticket.state is State.RUNNING:
            self.engines[ticket.pod or ""].cancel(ticket, self.now)
        self.ledger.end(ticket, visit.outcome or Outcome.CANCELLED, self.now)
        self._on_ended(ticket)
        self._start_all()


def resize(model: ServiceModel, slots: int) -> ServiceModel:
    """The same engine with other slots: a longer table goes on as its last step did."""
    steps = list(model.step_seconds[:slots])
    growth = steps[-1] - steps[-2] if len(steps) > 1 else 0.0
    while len(steps) < slots:
        steps.append(steps[-1] + growth)
    return replace(model, step_seconds=tuple(steps))
