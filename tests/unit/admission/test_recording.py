"""The decision log: every decision is made again exactly, by the same code, from the log alone."""

from __future__ import annotations

import inspect
import json
import random
from collections import OrderedDict, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from punctual_admission.decision import decide, examine
from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.output_length import OutputLength
from punctual_admission.policy import Mode, Policy, policy_from_spec
from punctual_admission.pool import Foreign
from punctual_admission.recording.codec import CodecError, decode, encode
from punctual_admission.recording.player import CALLS, LogError, Player
from punctual_admission.recording.recorder import FORMAT, RecordingLedger, record, stop
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Request, State, Ticket

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = ServiceModel((0.01, 0.011, 0.012), 0.005, 0.0001)
SPECS: tuple[Mapping[str, Any], ...] = (
    {},
    {"mode": "Deadline"},
    {"mode": "Bounded", "queue": {"order": "FirstInFirstOut"}},
    {"mode": "Unlimited"},
    {"queue": {"displacement": "Longest"}},
    {"estimate": {"outputLength": "Learned", "speed": "Fixed"}},
    {"sizeClasses": [{"name": "long", "minimumTokens": 64, "reservedPercent": 25}]},
    {"enforcement": "Observe"},
    {"refusals": {"counterOffer": "Always"}},
    {"memory": {"gate": "Enabled"}, "quota": {"requestsPerMinute": 900}},
)
NOT_CALLS = {
    "all_pods", "checkpoint", "flush", "lacks_memory", "length", "margin", "memory_wait",
    "next_wakeup", "own_queue", "own_queued_work", "pods", "queue", "queued_work", "quota_wait",
    "running", "running_work",
}  # fmt: skip
"""Public members of a ledger that change nothing, and the recorder's own."""
WORDS = {
    "progressed": "token", "next_start": "start", "join_pod": "join", "suspend_pod": "suspend",
    "leave_pod": "leave", "observe_foreign": "foreign", "apply_policy": "policy",
    "forecast": "view", "observe_memory": "memory", "observe_peer": "peer",
    "lose_peer": "lose",
}  # fmt: skip


class Lines:
    """Keeps the lines as JSON; asks for a checkpoint after every `every` lines."""

    def __init__(self, every: int = 40) -> None:
        self.lines: list[str] = []
        self._every = every

    @property
    def checkpoint_due(self) -> bool:
        return len(self.lines) % self._every == 0

    def put(self, line: dict[str, Any]) -> None:
        self.lines.append(json.dumps(line))

    def play(self) -> Player:
        player = Player()
        for line in self.lines:
            player.feed(json.loads(line))
        return player


def build_policy(spec: Mapping[str, Any]) -> Policy:
    return policy_from_spec({"model": "m", "deadline": {"defaultMilliseconds": 1500}, **spec})


def request(number: int, now: float, tokens: int, budget: float = 1.5) -> Request:
    group = "" if number % 3 else "tenant"
    return Request(f"r{number}", number % 40, tokens, now, now + budget, group)


class Driver:
    """Does to a ledger what a gateway may do to it, at random."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        self.ledger = ledger
        self.rng = random.Random(seed)
        self.now = 100.0
        self.number = 0

    def run(self, steps: int) -> None:
        self.ledger.join_pod("a", MODEL, self.now)
        self.ledger.join_pod("b", ServiceModel(MODEL.step_seconds[:1], 0.01), self.now, 1.1)
        actions = [self.offer] * 6 + [self.advance] * 8 + [self.meddle, self.watch]
        for _ in range(steps):
            self.now += self.rng.expovariate(200)
            self.rng.choice(actions)()
            self.pump()

    def pump(self) -> None:
        if self.ledger.next_wakeup() <= self.now:
            self.ledger.wake(self.now)
        while self.ledger.next_start(self.now) is not None:
            pass

    def offer(self) -> None:
        self.number += 1
        tokens = self.rng.choice((1, 4, 16, 64))
        self.ledger.offer(request(self.number, self.now, tokens), self.now)

    def advance(self) -> None:
        for ticket in self.running():
            if ticket.generated < ticket.request.output_tokens:
                self.ledger.progressed(ticket, self.now)
            if ticket.generated >= ticket.request.output_tokens or self.rng.random() < 0.02:
                self.ledger.complete(ticket, self.now)

    def meddle(self) -> None:
        ledger, running = self.ledger, self.running()
        deed = self.rng.randrange(9)
        if deed == 0 and running:
            ledger.requeue(running[0], self.now, 0.05)
        elif deed == 1 and ledger.own_queue:
            ledger.end(ledger.own_queue[-1], Outcome.CANCELLED, self.now)
        elif deed == 2 and running:
            ledger.end(running[-1], Outcome.LATE, self.now, Reason.DEADLINE_EXCEEDED)
        elif deed == 7:
            self.hear()
        elif deed == 8:
            ledger.lose_peer("other")
        elif deed == 6:
            ledger.observe_memory("a", self.rng.choice((None, 500)))
        elif deed == 3:
            ledger.suspend_pod("b")
        elif deed == 4:
            ledger.observe_foreign("a", (Foreign(8), Foreign(4, 12))[: self.rng.randrange(3)])
        else:
            ledger.leave_pod("b")
            ledger.join_pod("c" if self.rng.random() < 0.5 else "b", MODEL, self.now)

    def hear(self) -> None:
        waiting = [request(1000 + number, self.now, 16) for number in range(self.rng.randrange(4))]
        running = {"a": [Foreign(5), Foreign(7, 3)][: self.rng.randrange(3)]}
        self.ledger.observe_peer("other", waiting, running, self.now)

    def watch(self) -> None:
        ledger, typical = self.ledger, request(0, self.now, 64)
        examine(ledger.policy, ledger, typical, self.now)
        decide(ledger.policy, ledger, typical, self.now)
        ledger.jitter()
        self.now += 0.0005
        self.offer()

    def running(self) -> list[Ticket]:
        pods = self.ledger.all_pods
        return [t for pod in pods for t in pod.residents.values() if t.state is State.RUNNING]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: str(spec)[:40])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_log_is_lived_again_without_a_difference(spec: Mapping[str, Any], seed: int) -> None:
    lines = Lines()
    driver = Driver(record(Ledger(build_policy(spec)), lines), seed)
    driver.run(400)
    stop(driver.ledger)  # type: ignore[arg-type]  # it is the recording one
    player = lines.play()
    assert player.differences == []
    assert (player.decisions, player.skipped) == (driver.number, 0)
    assert player.checkpoints > 2


def test_a_swap_of_the_policy_and_a_drain_are_in_the_log() -> None:
    lines = Lines(10_000)
    ledger = record(Ledger(build_policy({})), lines)
    driver = Driver(ledger, 3)
    driver.run(100)
    ledger.apply_policy(replace(ledger.policy, mode=Mode.BOUNDED))
    driver.run(100)
    ledger.draining = True
    driver.offer()
    player = lines.play()
    assert (player.differences, player.decisions) == ([], driver.number)
    assert player.ledger is not None
    assert player.ledger.policy.mode is Mode.BOUNDED
    assert '"draining"' in lines.lines[-1]


def test_a_call_that_takes_no_time_has_that_of_the_clock() -> None:
    lines = Lines(10_000)
    ledger = record(Ledger(build_policy({})), lines, lambda: 7.5)
    ledger.join_pod("a", MODEL, 1.0)
    ledger.observe_foreign("a", [])
    ledger.observe_memory("a", 1000)
    ledger.suspend_pod("a")
    ledger.leave_pod("a")
    ledger.apply_policy(ledger.policy)
    ledger.lose_peer("b")
    ledger.flush()
    calls = json.loads(lines.lines[-1])["before"]
    assert [call[1] for call in calls] == [1.0, *[7.5] * 6]
    assert lines.play().differences == []


def test_a_reader_can_begin_at_any_checkpoint() -> None:
    lines = Lines()
    driver = Driver(record(Ledger(build_policy({})), lines), 4)
    driver.run(300)
    lines.lines = lines.lines[3:]
    player = lines.play()
    assert player.differences == []
    assert player.skipped > 0
    assert player.decisions + player.skipped + 3 >= driver.number


def test_recording_can_begin_with_requests_under_way_and_end_while_they_are() -> None:
    heard: list[Ticket] = []
    driver = Driver(Ledger(build_policy({"mode": "Deadline"}), ended=heard.append), 5)
    driver.run(200)
    lines = Lines()
    recording = record(driver.ledger, lines)
    driver.ledger = recording
    driver.run(200)
    driver.ledger = stop(recording)
    written = len(lines.lines)
    driver.run(200)
    assert type(driver.ledger) is Ledger
    assert len(lines.lines) == written
    assert lines.play().differences == []
    assert {ticket.outcome for ticket in heard} == {Outcome.EXPIRED}


def test_calls_without_a_decision_are_written_before_they_are_too_many() -> None:
    lines = Lines(10_000)
    ledger = record(Ledger(build_policy({})), lines)
    ledger.join_pod("a", MODEL, 0.0)
    ticket = ledger.offer(request(1, 0.0, 2000, 100.0), 0.0)
    assert isinstance(ticket, Ticket)
    for step in range(1200):
        ledger.progressed(ticket, step * 0.01)
    assert len(lines.lines) == 4
    ledger.flush(13.0)
    ledger.flush(13.0)
    assert len(lines.lines) == 5
    player = lines.play()
    assert player.calls == 1201
    assert player.tickets[ticket.sequence].generated == 1200


def test_a_forged_decision_is_found_and_what_follows_waits_for_a_checkpoint() -> None:
    lines = Lines(20)
    driver = Driver(record(Ledger(build_policy({})), lines), 6)
    driver.run(300)
    forged = json.loads(lines.lines[5])
    forged["wait"] += 1e-9
    lines.lines[5] = json.dumps(forged)
    player = lines.play()
    assert [(d.subject, d.field) for d in player.differences] == [(forged["request"]["id"], "wait")]
    assert player.differences[0].logged == forged["wait"]
    assert player.skipped > 0
    assert player.decisions > 20


@pytest.mark.parametrize(
    ("word", "field", "place", "value"),
    [
        ("start", "started", 2, [9, "a"]),
        ("start", "ended", 3, [[1, "expired", None]]),
        ("wake", "ended", 2, [[1, "expired", None]]),
        ("complete", "outcome", 3, "late"),
    ],
)
def test_a_forged_call_is_found(word: str, field: str, place: int, value: object) -> None:
    lines = Lines(10_000)
    ledger = record(Ledger(build_policy({"mode": "Deadline"})), lines)
    ledger.join_pod("a", ServiceModel((0.01,)), 0.0)
    first = ledger.offer(request(1, 0.0, 4), 0.0)
    assert isinstance(first, Ticket)
    ledger.offer(request(2, 0.0, 4, 0.1), 0.0)
    ledger.offer(request(3, 0.0, 4), 0.0)
    ledger.wake(0.2)
    ledger.progressed(first, 0.2, 4)
    ledger.complete(first, 0.2)
    ledger.next_start(0.2)
    ledger.flush()
    line = json.loads(lines.lines[-1])
    for call in line["before"]:
        if call[0] == word:
            call[place] = value
    lines.lines[-1] = json.dumps(line)
    player = lines.play()
    assert [(d.subject, d.field) for d in player.differences] == [(word, field)]


def test_a_checkpoint_that_does_not_follow_from_the_log_is_found() -> None:
    lines = Lines(3)
    driver = Driver(record(Ledger(build_policy({})), lines), 7)
    driver.run(60)
    where = [i for i, line in enumerate(lines.lines) if '"checkpoint"' in line][1]
    line = json.loads(lines.lines[where])
    margin = next(pair for pair in line["state"][1:] if pair[0] == "sojourns")
    margin[1][3]["_weight"] += 1
    lines.lines[where] = json.dumps(line)
    player = lines.play()
    difference = player.differences[0]
    assert (difference.subject, difference.field) == ("checkpoint", "state")
    assert difference.logged == margin[1][3]["_weight"]


def test_after_a_gap_nothing_is_compared_and_the_dropped_lines_are_counted() -> None:
    lines = Lines(10_000)
    ledger = record(Ledger(build_policy({})), lines)
    driver = Driver(ledger, 8)
    driver.run(50)
    ledger.flush()
    del lines.lines[10:]
    lines.put(ledger.checkpoint() | {"dropped": 7})
    driver.run(50)
    player = lines.play()
    assert (player.dropped, player.differences, player.checkpoints) == (7, [], 2)


@pytest.mark.parametrize(
    "line",
    [
        {"checkpoint": 99},
        {"checkpoint": FORMAT, "t": 0, "seed": 1, "state": ["x"]},
        {"t": 0.0, "before": [["dance", 0.0]]},
        {"t": 0.0, "before": [["token", 0.0, 99, 1]]},
        {"t": 0.0, "before": [["policy", None, 5]]},
        {"t": 0.0, "request": {"id": "a"}},
    ],
)
def test_a_line_that_makes_no_sense_is_named(line: dict[str, Any]) -> None:
    lines = Lines()
    record(Ledger(build_policy({})), lines)
    player = lines.play()
    with pytest.raises(LogError, match="must be"):
        player.feed(line)


def test_a_log_of_another_format_names_the_version_that_reads_it() -> None:
    with pytest.raises(LogError, match=r"must be 2, got 1; .* version that wrote it, 0\.9"):
        Player().feed({"checkpoint": 1, "t": 0.0, "version": "0.9"})


def test_every_member_of_a_ledger_is_recorded_or_known_to_change_nothing() -> None:
    members = {name for name, _ in inspect.getmembers(RecordingLedger) if name[0] != "_"}
    assert {WORDS.get(name, name) for name in members - NOT_CALLS} == CALLS - {"drain"} | {"offer"}


def test_values_come_back_as_they_were() -> None:
    length = OutputLength([1.0, 2.0], 1.5, 0.25)
    value = {
        "plain": [None, True, 1, 1.5, "x"],
        "kinds": ((1, 2), deque([3]), {4}, {5: "five"}, OrderedDict(a=1)),
        "large": [2**70, -(2**70)],
        "infinite": [float("inf"), float("-inf")],
        "word": Outcome.GOOD,
        "same": [length, length],
        "frozen": request(1, 0.0, 4),
    }
    written = json.loads(json.dumps(encode(value), allow_nan=False))
    read = decode(written)
    assert read == value
    assert read["same"][0] is read["same"][1]


@pytest.mark.parametrize("value", [b"bytes", random.Random(1), 1j])
def test_a_value_of_another_package_cannot_be_written(value: object) -> None:
    with pytest.raises(CodecError, match="must hold values of punctual_admission"):
        encode(value)


@pytest.mark.parametrize(
    "given",
    [
        ["x"],
        ["r", 7],
        ["o", 0, "os:system", {}],
        ["v", "punctual_admission.ticket:Request", {"strange": 1}],
        ["o", 0, "punctual_admission.ledger:random", {}],
        ["o", 0, "punctual_admission.ledger:Policy", {}],
        ["o", 0, "punctual_admission.nowhere:X", {}],
        ["e", "punctual_admission.outcomes:Outcome", "strange"],
        [],
    ],
)
def test_json_that_is_no_value_is_refused(given: object) -> None:
    with pytest.raises(CodecError, match="must be what `encode` wrote"):
        decode(given)
