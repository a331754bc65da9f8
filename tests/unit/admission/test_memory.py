"""The memory gate: whoever runs fits into the pods' key-value memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from punctual_admission.ledger import Ledger
from punctual_admission.limits import Memory
from punctual_admission.memory import free_memory, reservation
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.output_length import OutputLength
from punctual_admission.pool import Foreign
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Refusal, State
from support.admission import admitted, ask, exact_ledger, make_policy, refused

MODEL = ServiceModel((0.01, 0.01), 0.01)
GATED = {"gate": "Enabled"}


def gated_ledger(*tokens: int | None, **memory: Any) -> Ledger:
    """A pod of two slots for each number of tokens that it holds."""
    ledger = exact_ledger(make_policy(memory=GATED | memory), *[MODEL] * len(tokens))
    for index, size in enumerate(tokens):
        ledger.observe_memory(f"pod-{index}", size)
    return ledger


def test_what_does_not_fit_into_a_pod_is_refused() -> None:
    """Prompt and answer count, and the largest pod decides."""
    ledger = gated_ledger(100, 80)
    assert refused(ledger.offer(ask(0, prompt=60, tokens=41), 0.0)).reason is (
        Reason.MEMORY_EXHAUSTED
    )
    admitted(ledger.offer(ask(1, prompt=60, tokens=40), 0.0))


def test_what_would_wait_too_long_for_memory_is_refused() -> None:
    """A second of answers that fill the memory, and then 0.3 s of its own."""
    ledger = gated_ledger(100)
    admitted(ledger.offer(ask(0, tokens=90), 0.0))
    answer = refused(ledger.offer(ask(1, tokens=30, budget=1.0), 0.0))
    assert answer.reason is Reason.MEMORY_EXHAUSTED
    assert answer.prediction.wait < 0.1
    assert answer.retry_may_help
    waiting = admitted(ledger.offer(ask(2, tokens=30, budget=5.0), 0.0))
    assert waiting.state is State.QUEUED


def test_slots_and_not_memory_are_waited_for_where_it_is_plenty() -> None:
    """The forecast alone decides, as without the gate."""
    ledger = gated_ledger(100_000)
    for number in range(20):
        admitted(ledger.offer(ask(number, tokens=40), 0.0))


@pytest.mark.parametrize("mode", ["Unlimited", "Bounded", "Deadline"])
def test_other_modes_refuse_only_what_never_fits(mode: str) -> None:
    """They promise nothing, so whoever has to wait for memory waits."""
    policy = make_policy(mode=mode, memory=GATED)
    ledger = exact_ledger(policy, MODEL)
    ledger.observe_memory("pod-0", 100)
    assert not refused(ledger.offer(ask(0, tokens=101), 0.0)).retry_may_help
    for number in range(1, 4):
        admitted(ledger.offer(ask(number, tokens=60), 0.0))
    assert ledger.running == 1


def test_without_the_gate_or_the_size_nothing_is_refused() -> None:
    """The default, and pods that do not tell how much they hold."""
    plain = exact_ledger(make_policy(), MODEL)
    plain.observe_memory("pod-0", 10)
    plain.observe_memory("no such pod", 10)
    assert admitted(plain.offer(ask(0, tokens=100), 0.0)).reserved == 0
    unknown = gated_ledger(None, 10)
    admitted(unknown.offer(ask(0, tokens=100), 0.0))


def test_work_of_other_gateways_takes_memory() -> None:
    """What the pod reports of them is not free."""
    ledger = gated_ledger(100)
    ledger.observe_foreign("pod-0", [Foreign(30, None, 50)])
    assert free_memory(ledger.pods[0]) == 50
    assert admitted(ledger.offer(ask(0, tokens=51), 0.0)).state is State.QUEUED
    ledger.observe_foreign("pod-0", [])
    assert ledger.next_start(0.0) is not None


def test_who_does_not_fit_beside_a_pods_residents_starts_on_another_one() -> None:
    """A pod with a free slot and no memory is passed over."""
    ledger = gated_ledger(100, 300)
    first = admitted(ledger.offer(ask(0, tokens=90), 0.0))
    second = admitted(ledger.offer(ask(1, tokens=95), 0.0))
    third = admitted(ledger.offer(ask(2, tokens=200), 0.0))
    assert (first.pod, second.pod, third.pod) == ("pod-0", "pod-1", "pod-1")


def test_who_finds_no_pod_with_memory_waits_until_there_is_some() -> None:
    """Free memory is scattered over two pods; nobody spins meanwhile, and its end starts it."""
    ledger = gated_ledger(100, 100)
    first = admitted(ledger.offer(ask(0, tokens=50), 0.0))
    admitted(ledger.offer(ask(1, tokens=51), 0.0))
    waiting = admitted(ledger.offer(ask(2, tokens=90), 0.0))
    assert waiting.state is State.QUEUED
    assert ledger.next_start(0.0) is None
    assert ledger.next_wakeup() == waiting.request.deadline
    ledger.end(first, Outcome.CANCELLED, 0.1)
    assert ledger.next_start(0.1) is waiting


def test_a_quantile_of_the_learned_length_is_reserved_where_asked_for() -> None:
    """The worst case is the default, and stands where nothing was learned."""
    request = ask(0, prompt=10, tokens=100)
    length = OutputLength.of([float(case) for case in range(1, 101)])
    learned = Memory(reservation=make_policy(memory={"reservation": "Learned"}).memory.reservation,
                     quantile_percent=90)  # fmt: skip
    assert reservation(Memory(), request, length) == 110
    assert reservation(learned, request, length) == 100
    assert reservation(learned, request, None) == 110


def test_tokens_of_a_pod_follow_from_its_memory_and_the_models_shape() -> None:
    """Llama 3.1 8B in 16 bits: 2 x 32 layers x 8 heads x 128 x 2 bytes are 128 KiB a token."""
    memory = Memory(bytes_per_token=2 * 32 * 8 * 128 * 2, mebibytes=1024)
    assert memory.tokens == 8192
    assert Memory(bytes_per_token=1).tokens is None
    assert Memory(mebibytes=1).tokens is None


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 60)), min_size=1, max_size=40),
    st.lists(st.integers(20, 200), min_size=1, max_size=3),
)
def test_no_pod_ever_holds_more_than_it_has(
    requests: list[tuple[int, int]], sizes: list[int]
) -> None:
    """Whatever comes, and in whatever order it ends."""
    ledger = gated_ledger(*sizes)
    open_tickets = []
    for number, (tokens, prompt) in enumerate(requests):
        answer = ledger.offer(ask(number, tokens=tokens, prompt=prompt), 0.0)
        if not isinstance(answer, Refusal):
            open_tickets.append(answer)
        if number % 3 == 2 and open_tickets:
            ledger.end(open_tickets.pop(number % len(open_tickets)), Outcome.CANCELLED, 0.0)
        while ledger.next_start(0.0) is not None:
            pass
        assert all(free_memory(pod) >= 0 for pod in ledger.pods)
