"""Lives a decision log again, on a ledger of its own, and compares each decision with the log."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import Policy
from punctual_admission.recording.codec import decode
from punctual_admission.recording.recorder import FORMAT, Line, decision_line, encode_state
from punctual_admission.ticket import Request, Ticket

_WORDS = (
    "complete drain end foreign held jitter join leave lose memory peer policy regret requeue "
    "start suspend token view wake"
)
CALLS = frozenset(_WORDS.split())
"""Words of the calls that may stand before a decision."""


class LogError(ValueError):
    """A line that is none of a decision log, or that cannot follow the one before."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the ledger did something else than the log says."""

    time: float | None
    subject: str
    """The request's id, or the word of the call."""
    field: str
    logged: object
    replayed: object


class _Differs(Exception):  # noqa: N818  # caught here
    def __init__(self, field: str, logged: object, replayed: object) -> None:
        super().__init__(field)
        self.found = (field, logged, replayed)


class Player:
    """Takes the lines of one log in their order.

    `ledger` is None before the first checkpoint, after a gap and after a difference: lines are
    then only counted in `skipped`, until the next checkpoint.
    """

    def __init__(self) -> None:
        self.ledger: Ledger | None = None
        self.decisions = 0
        """Decisions that were made again."""
        self.calls = 0
        """Other calls."""
        self.skipped = 0
        """Decisions that could not be compared."""
        self.dropped = 0
        """Lines that the gateway says it could not write."""
        self.checkpoints = 0
        self.differences: list[Difference] = []
        self._tickets: dict[int, Ticket] = {}
        self._ended: list[Ticket] = []

    @property
    def tickets(self) -> Mapping[int, Ticket]:
        """Those that have not ended, by their sequence."""
        return self._tickets

    def feed(self, line: Line) -> None:
        """Take the next line; raises LogError if it makes no sense."""
        try:
            self._feed(line)
        except LogError:
            raise
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise LogError(f"a line must be one of a decision log: {error!r}") from error

    def _feed(self, line: Line) -> None:
        if "checkpoint" in line:
            self._take_checkpoint(line)
        elif self.ledger is None:
            self.skipped += "request" in line
        else:
            self._take(line, self.ledger)

    def _take_checkpoint(self, line: Line) -> None:
        if line["checkpoint"] != FORMAT:
            raise LogError(
                f"the log's format must be {FORMAT}, got {line['checkpoint']!r}; it is read by the "
                f"version that wrote it, {line.get('version', 'which it does not name')}"
            )
        self.dropped += line.get("dropped", 0)
        if self.ledger is not None and not line.get("dropped"):
            replayed = encode_state(self.ledger)
            if replayed != line["state"]:
                self._differ(line["t"], "checkpoint", "state", *_first(line["state"], replayed))
        self.checkpoints += 1
        self.ledger = load_ledger(line, self._ended.append)
        self._ended.clear()
        self._tickets = {
            ticket.sequence: ticket
            for ticket in (
                *self.ledger.own_queue,
                *(t for pod in self.ledger.all_pods for t in pod.residents.values()),
            )
        }

    def _take(self, line: Line, ledger: Ledger) -> None:
        for call in line.get("before", ()):
            word, now, *values = call
            self.calls += 1
            try:
                self._call(ledger, word, now, values)
            except _Differs as differs:
                self._differ(now, word, *differs.found)
                return
        if "request" in line:
            self._decide(line, ledger)

    def _call(self, ledger: Ledger, word: str, now: Any, values: list[Any]) -> None:
        if word not in CALLS:
            raise LogError(f"a call must be one of {', '.join(sorted(CALLS))}, got {word!r}")
        getattr(self, f"_{word}")(ledger, now, *values)

    def _decide(self, line: Line, ledger: Ledger) -> None:
        request = Request(**line["request"])
        now = line["t"]
        answer = ledger.offer(request, now)
        ended = self._take_ended()
        self.decisions += 1
        replayed = decision_line(request, now, answer, ended)
        for name, value in replayed.items():
            if name not in line or line[name] != value:
                self._differ(now, request.id, name, line.get(name), value)
                return
        if isinstance(answer, Ticket) and answer.outcome is None:
            self._tickets[answer.sequence] = answer

    def _differ(self, now: float | None, *found: Any) -> None:
        self.differences.append(Difference(now, *found))
        self.ledger = None

    def _take_ended(self) -> list[list[Any]]:
        ended = [[t.sequence, t.outcome, t.reason] for t in self._ended]
        for ticket in self._ended:
            self._tickets.pop(ticket.sequence, None)
        self._ended.clear()
        return ended

    # --- calls, by their words -----------------------------------------------------------------

    def _start(
        self, ledger: Ledger, now: float, started: list[Any] | None, ended: list[Any]
    ) -> None:
        ticket = ledger.next_start(now)
        replayed = None if ticket is None else [ticket.sequence, ticket.pod]
        _expect("started", started, replayed)
        _expect("ended", ended, self._take_ended())

    def _token(self, ledger: Ledger, now: float, sequence: int, tokens: int) -> None:
        ledger.progressed(self._tickets[sequence], now, tokens)

    def _complete(self, ledger: Ledger, now: float, sequence: int, outcome: str) -> None:
        _expect("outcome", outcome, ledger.complete(self._tickets.pop(sequence), now))

    def _end(
        self, ledger: Ledger, now: float, sequence: int, outcome: str, reason: str | None
    ) -> None:
        why = None if reason is None else Reason(reason)
        ledger.end(self._tickets.pop(sequence), Outcome(outcome), now, why)

    def _requeue(self, ledger: Ledger, now: float, sequence: int, pause: float) -> None:
        ledger.requeue(self._tickets[sequence], now, pause)

    def _wake(self, ledger: Ledger, now: float, ended: list[Any]) -> None:
        ledger.wake(now)
        _expect("ended", ended, self._take_ended())

    def _join(self, ledger: Ledger, now: float, pod_id: str, model: Any, ratio: float) -> None:
        ledger.join_pod(pod_id, decode(model), now, ratio)

    def _suspend(self, ledger: Ledger, _: float | None, pod_id: str) -> None:
        ledger.suspend_pod(pod_id)

    def _leave(self, ledger: Ledger, _: float | None, pod_id: str) -> None:
        ledger.leave_pod(pod_id)

    def _foreign(self, ledger: Ledger, _: float | None, pod_id: str, foreign: Any) -> None:
        ledger.observe_foreign(pod_id, decode(foreign))

    def _policy(self, ledger: Ledger, _: float | None, policy: Any) -> None:
        decoded = decode(policy)
        if not isinstance(decoded, Policy):
            raise LogError(f"a policy must be a Policy, got {type(decoded).__name__}")
        ledger.apply_policy(decoded)

    def _drain(self, ledger: Ledger, _: float, draining: bool) -> None:
        ledger.draining = draining

    def _view(self, ledger: Ledger, now: float) -> None:
        ledger.forecast(now)

    def _peer(self, ledger: Ledger, now: float, peer: str, waiting: Any, running: Any) -> None:
        ledger.observe_peer(peer, decode(waiting), decode(running), now)

    def _lose(self, ledger: Ledger, _: float | None, peer: str) -> None:
        ledger.lose_peer(peer)

    def _memory(self, ledger: Ledger, _: float | None, pod_id: str, tokens: int | None) -> None:
        ledger.observe_memory(pod_id, tokens)

    def _held(self, ledger: Ledger, now: float, request: dict[str, Any]) -> None:
        ledger.held(Request(**request), now)

    def _regret(
        self, ledger: Ledger, now: float, request: dict[str, Any], cost: float, wait: float
    ) -> None:
        ledger.regret(Request(**request), cost, wait, now)

    def _jitter(self, ledger: Ledger, _: None) -> None:
        ledger.jitter()


def load_ledger(line: Line, ended: Any = lambda _: None) -> Ledger:
    """The ledger of a checkpoint line. Raises CodecError or KeyError."""
    state = decode(line["state"])
    ledger = Ledger(state["policy"], ended=ended, rng=random.Random(line["seed"]))
    vars(ledger).update(state)
    ledger._pods_changed()  # noqa: SLF001  # which of them can take work is not written
    return ledger


def _expect(field: str, logged: object, replayed: object) -> None:
    if logged != replayed:
        raise _Differs(field, logged, replayed)


def _first(logged: Any, replayed: Any) -> tuple[Any, Any]:
    """The innermost first difference of two JSON values that differ."""
    if isinstance(logged, dict) and isinstance(replayed, dict):
        logged, replayed = list(logged.items()), list(replayed.items())
    nested = isinstance(logged, list | tuple) and isinstance(replayed, list | tuple)
    if not nested or len(logged) != len(replayed):
        return logged, replayed
    return _first(*next(both for both in zip(logged, replayed, strict=True) if both[0] != both[1]))
