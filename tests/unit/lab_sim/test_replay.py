"""Decision logs of runs on virtual time, decided again and simulated."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from punctual_admission.outcomes import Outcome
from punctual_admission.policy import policy_from_spec
from punctual_admission.pool import Foreign, Pod
from punctual_admission.recording.recorder import record
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import State
from punctual_lab.cli import main
from punctual_lab.decision_log import read_lines
from punctual_lab.experiments.replay import change_policy
from punctual_lab.simulate.recorded import RecordedWorld, read_history, resize
from punctual_lab.simulate.world import Arrival, PodSpec, World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SPEC: dict[str, Any] = {"model": "m", "deadline": {"defaultMilliseconds": 1500}}


class Lines:
    """Writes lines to a file; a checkpoint after each `every` of them."""

    def __init__(self, path: Path, every: int = 10_000) -> None:
        self._path, self._every, self._count = path, every, 0

    @property
    def checkpoint_due(self) -> bool:
        self._count += 1
        return self._count % self._every == 0

    def put(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def write_log(
    path: Path,
    *,
    slots: int = 1,
    pods: int = 1,
    meddle: Callable[[World], None] = lambda _: None,
    **spec: Any,
) -> World:
    """A noisy run of 20 s at load 2, written down."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = random.Random(5)
    steps = tuple(0.01 * (1 + 0.1 * batch) for batch in range(slots))
    pod = PodSpec(ServiceModel(steps, 0.01), noise=lambda: rng.lognormvariate(0.0, 0.1))
    world = World(policy_from_spec(SPEC | spec), [pod] * pods)
    world.ledger = record(world.ledger, Lines(path), lambda: world.now)
    arrivals, now = [], 0.0
    while now < 20:
        now += rng.expovariate(12 * pods * slots)
        tokens = rng.choice((4, 4, 16, 16, 64))
        arrivals.append(Arrival(now, 0, tokens, 1.5, rng.randint(1, tokens)))
    meddle(world)
    world.run(arrivals)
    world.ledger.flush()
    return world


def replay(tmp_path: Path, path: Path, *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["replay", str(path), *words, "--reports", str(tmp_path)]) == code
    page = (tmp_path / "replay" / "report.html").read_text(encoding="utf-8")
    assert "Decisions made again from the log" in page
    summary: dict[str, Any] = json.loads((tmp_path / "replay" / "summary.json").read_text("utf-8"))
    return summary


def come_back(world: World, pod: Pod) -> None:
    world.ledger.join_pod(pod.id, pod.model, world.now)


def leave_and_fail(world: World) -> None:
    """Some clients leave, some answers break off, and a pod pauses for a while."""

    def drop(outcome: Outcome) -> None:
        pods = world.ledger.all_pods
        running = [t for pod in pods for t in pod.residents.values()]
        for ticket in (*world.ledger.queue[:1], *running[:1]):
            if ticket.state is State.RUNNING:
                world.engines[ticket.pod or ""].cancel(ticket, world.now)
            world.ledger.end(ticket, outcome, world.now)
            world._on_ended(ticket)
        world._start_all()

    for second in range(2, 18, 3):
        world.at(float(second), lambda: drop(Outcome.CANCELLED))
        world.at(second + 0.5, lambda: drop(Outcome.FAILED))
    pod = world.ledger.all_pods[0]
    world.at(5.0, lambda: world.ledger.suspend_pod(pod.id))
    world.at(5.1, lambda: world.ledger.observe_foreign(pod.id, [Foreign(3)]))
    world.at(5.2, lambda: world.ledger.observe_foreign(pod.id, []))
    world.at(5.3, lambda: world.ledger.observe_memory(pod.id, 4000))
    world.at(5.5, lambda: come_back(world, pod))
    swapped = policy_from_spec(SPEC | {"mode": "Deadline"})
    world.at(10.0, lambda: world.ledger.apply_policy(swapped))


def work_for_others(world: World) -> None:
    """Twice, the pod does something else for a while."""

    def see(*foreign: Foreign) -> None:
        world.ledger.observe_foreign("pod-0", foreign)
        world._start_all()

    for begin in (5.0, 12.0):
        world.at(begin, lambda: see(Foreign(30)))
        world.at(begin + 0.4, see)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"mode": "Deadline"},
        {"mode": "Unlimited", "overdue": "Finish"},
        {"queue": {"displacement": "Longest"}},
    ],
    ids=str,
)
def test_a_run_with_one_slot_ends_as_it_did(tmp_path: Path, spec: dict[str, Any]) -> None:
    """To the last digit where decided again, and within 1 % where simulated."""
    log = tmp_path / "live" / "decisions" / "one.jsonl"
    write_log(log, **spec)
    one = replay(tmp_path, tmp_path / "live", "--limit", "0.01")["runs"]["one"]
    assert one["exact"]["differences"] == []
    assert one["exact"]["decisions"] == one["requests"] > 200
    assert one["share_different"] == 0
    assert one["different_whole"] <= 0.02 * one["requests"]


def test_a_pod_that_worked_for_others_is_free_again_when_it_was(tmp_path: Path) -> None:
    """Though no call about a request says when."""
    log = tmp_path / "one.jsonl"
    write_log(log, meddle=work_for_others)
    one = replay(tmp_path, log)["runs"]["one"]
    assert one["exact"]["differences"] == []
    assert one["different"] == 0


def test_what_came_from_outside_comes_again(tmp_path: Path) -> None:
    """Clients leave, answers break off, a pod pauses, the policy is swapped."""
    log = tmp_path / "log.jsonl"
    write_log(log, meddle=leave_and_fail)
    one = replay(tmp_path, log)["runs"]["log"]
    assert one["exact"]["differences"] == []
    assert one["live"]["cancelled"] > 0
    assert one["live"]["failed"] > 0
    assert one["share_different"] <= 0.05


def test_several_pods_and_slots_are_close(tmp_path: Path) -> None:
    """Steps are shared there, so a service's own time is not all that matters."""
    log = tmp_path / "log.jsonl"
    write_log(log, slots=3, pods=2)
    one = replay(tmp_path, log)["runs"]["log"]
    assert one["exact"]["differences"] == []
    assert one["simulated"]["good"] == pytest.approx(one["live"]["good"], rel=0.05)


def test_what_if_changes_pods_slots_deadline_and_policy(tmp_path: Path) -> None:
    """More pods, more slots or more time answer more; each is reported beside what was."""
    log = tmp_path / "log.jsonl"
    write_log(log)
    was = replay(tmp_path, log)["runs"]["log"]["simulated"]["good"]

    def good(*words: str) -> int:
        one = replay(tmp_path, log, *words)["runs"]["log"]
        assert one["what_if"]["good"] == one["what_if"]["tally"]["good"]
        return int(one["what_if"]["good"])

    assert good("--pods", "2") > was
    assert good("--slots", "4") > was
    assert good("--deadline-ms", "6000") > was
    assert good("--mode", "Bounded") < was
    assert good("--change", "queue.displacement=Longest", "--confidence", "95") > 0


def test_a_log_that_was_not_decided_so_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, and the first difference with both numbers."""
    log = tmp_path / "log.jsonl"
    write_log(log)
    lines = log.read_text("utf-8").splitlines()
    forged = json.loads(lines[40])
    forged["wait"] = 1234.5
    log.write_text("\n".join([*lines[:40], json.dumps(forged), *lines[41:]]), "utf-8")
    one = replay(tmp_path, log, code=1)["runs"]["log"]
    assert one["exact"]["differences"][0]["field"] == "wait"
    assert "1234.5" in (tmp_path / "replay" / "report.html").read_text("utf-8")
    assert capsys.readouterr().err == ""


def test_a_log_may_begin_within_a_run(tmp_path: Path) -> None:
    """What was learned is in the checkpoint; who was under way is left out."""
    log = tmp_path / "log.jsonl"
    world = write_log(log)
    world.ledger.sojourns.observe(1.0, 0.9)
    last = record(world.ledger, Lines(log))
    last.join_pod("pod-1", ServiceModel((0.01,), 0.01), world.now)
    World._start_all(world)
    lines = log.read_text("utf-8").splitlines()
    where = max(i for i, line in enumerate(lines) if '"checkpoint"' in line)
    later = tmp_path / "later.jsonl"
    later.write_text("\n".join(lines[where:]), "utf-8")
    history = read_history(read_lines(later))
    simulated = RecordedWorld(history)
    assert simulated.ledger.sojourns.records == world.ledger.sojourns.records


@pytest.mark.parametrize("text", ["", '{"t": 1.0}\n', "nonsense\n"])
def test_a_file_without_decisions_is_named(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and a sentence."""
    log = tmp_path / "log.jsonl"
    log.write_text(text, "utf-8")
    assert main(["replay", str(log), "--reports", str(tmp_path)]) == 2
    assert "must have a checkpoint" in capsys.readouterr().err


def test_a_policy_is_changed_by_paths_of_its_spec() -> None:
    """What is not named stays, and what is wrong is named."""
    policy = policy_from_spec(SPEC | {"estimate": {"confidencePercent": 90}})
    changed = change_policy(policy, [("queue.displacement", "Longest"), ("mode", "Deadline")])
    assert changed.queue.displacement == "Longest"
    assert changed.estimate == policy.estimate
    assert change_policy(policy, ()) is policy
    with pytest.raises(ValueError, match=r"spec\.mode must be"):
        change_policy(policy, [("mode", "Hopeful")])


def test_a_longer_table_of_steps_goes_on_as_its_last_step_did() -> None:
    """And a shorter one ends earlier."""
    model = ServiceModel((0.01, 0.012), 0.005)
    assert resize(model, 4).step_seconds == pytest.approx((0.01, 0.012, 0.014, 0.016))
    assert resize(model, 1).step_seconds == (0.01,)
    assert resize(ServiceModel((0.01,)), 2).step_seconds == (0.01, 0.01)
