"""Who is given up for a newcomer under `displacement: Longest`."""

from __future__ import annotations

from typing import Any

from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import State, Ticket
from support.admission import admitted, ask, exact_ledger, make_policy, refused

ENGINE = ServiceModel((0.1,))


def busy_ledger(ended: list[Ticket], model: ServiceModel = ENGINE, **queue: Any) -> Ledger:
    """One pod that is busy for a second, and displacement on."""
    policy = make_policy(queue={"displacement": "Longest", **queue})
    ledger = exact_ledger(policy, model, ended=ended.append)
    for slot in range(model.slots):
        admitted(ledger.offer(ask(slot, tokens=11), 0.0))
    return ledger


def test_the_longest_waiting_request_makes_room_for_a_shorter_one() -> None:
    """It ends once, as expired and displaced, and the listener is told."""
    ended: list[Ticket] = []
    ledger = busy_ledger(ended)
    short = admitted(ledger.offer(ask(11, tokens=3, budget=3.0), 0.0))
    long = admitted(ledger.offer(ask(12, tokens=17, budget=3.0), 0.0))
    newcomer = admitted(ledger.offer(ask(13, tokens=6, budget=3.0), 0.0))
    assert ended == [long]
    assert (long.state, long.outcome, long.reason) == (
        State.ENDED, Outcome.EXPIRED, Reason.DISPLACED,
    )  # fmt: skip
    assert list(ledger.queue) == [short, newcomer]


def test_nobody_is_displaced_by_a_longer_newcomer() -> None:
    """Giving up a shorter request for a longer one wins nothing."""
    ended: list[Ticket] = []
    ledger = busy_ledger(ended)
    admitted(ledger.offer(ask(11, tokens=16, budget=3.0), 0.0))
    refusal = refused(ledger.offer(ask(12, tokens=17, budget=3.0), 0.0))
    assert refusal.reason is Reason.DEADLINE_UNREACHABLE
    assert ended == []


def test_nobody_is_displaced_in_vain() -> None:
    """A newcomer that is late even then is refused, and nobody is given up."""
    ended: list[Ticket] = []
    ledger = busy_ledger(ended)
    admitted(ledger.offer(ask(11, tokens=16, budget=3.0), 0.0))
    refused(ledger.offer(ask(12, tokens=6, budget=1.2), 0.0))
    assert ended == []


def test_a_running_request_is_never_given_up() -> None:
    """The newcomer waits behind what runs, or is refused."""
    ended: list[Ticket] = []
    ledger = busy_ledger(ended)
    refused(ledger.offer(ask(11, tokens=2, budget=0.5), 0.0))
    assert ended == []
    assert ledger.running == 1


def test_a_later_deadline_behind_the_late_one_is_no_help_and_stays() -> None:
    """Only those who stand ahead of the first late one can make room for it."""
    ended: list[Ticket] = []
    ledger = busy_ledger(ended)
    behind = admitted(ledger.offer(ask(11, tokens=40, budget=9.0), 0.0))
    refused(ledger.offer(ask(12, tokens=6, budget=1.2), 0.0))
    assert list(ledger.queue) == [behind]
    assert ended == []


def test_with_several_slots_the_drop_is_verified_by_the_forecast() -> None:
    """Two slots: the longest goes, and everybody left is on time by the forecast."""
    ended: list[Ticket] = []
    ledger = busy_ledger(ended, ServiceModel((0.1, 0.1)))
    for number, tokens in enumerate((18, 18, 3), start=11):
        admitted(ledger.offer(ask(number, tokens=tokens, budget=3.0), 0.0))
    newcomer = admitted(ledger.offer(ask(14, tokens=9, budget=3.0), 0.0))
    assert [ticket.reason for ticket in ended] == [Reason.DISPLACED]
    assert newcomer in ledger.queue
    ends = ledger.forecast(0.0).ends()
    assert all(end <= 3.0 for end in ends)


def test_a_resident_made_late_cannot_be_helped_by_displacement() -> None:
    """With free slots and a slowed neighbour there is nobody to give up."""
    ended: list[Ticket] = []
    policy = make_policy(queue={"displacement": "Longest"})
    ledger = exact_ledger(policy, ServiceModel((0.1, 0.15)), ended=ended.append)
    admitted(ledger.offer(ask(0, tokens=11, budget=1.1), 0.0))
    refused(ledger.offer(ask(1, tokens=11, budget=9.0), 0.0))
    assert ended == []
