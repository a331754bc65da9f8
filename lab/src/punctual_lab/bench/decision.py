"""What one admission decision costs with 10, 100 and 1,000 requests in the queue."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from punctual_admission.ledger import Ledger
from punctual_admission.outcomes import Outcome
from punctual_admission.policy import policy_from_spec
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Refusal, Request, Ticket
from punctual_lab.measures import quantile
from punctual_lab.traces import REFERENCE_MIX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

QUEUE_LENGTHS = (10, 100, 1000)
PODS, SLOTS = 2, 4
STEP_SECONDS = 0.008
FAR_SECONDS = 10_000.0


def measure_decisions(
    *, rounds: int = 400, seed: int = 1, on_step: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Return microseconds of CPU time (p50, p99) of an admission and of a refusal for each queue
    length.

    `admit` and `refuse` are taken right after something changed, as while tokens arrive, so each
    computes the forecast anew; `refuse_unchanged` is a second refusal at the same moment.
    """
    results = {}
    for length in QUEUE_LENGTHS:
        results[str(length)] = measure_at(length, rounds, random.Random(seed))
        on_step()
    return results


def measure_at(length: int, rounds: int, rng: random.Random) -> dict[str, dict[str, float]]:
    """Measure one queue length on two pods of four slots, policy Predictive, order EDF."""
    ledger = build_ledger(length, rng)
    admit: list[float] = []
    refuse: list[float] = []
    again: list[float] = []
    for round_number in range(rounds):
        ticket, seconds = timed_offer(ledger, far_request(f"a{round_number}", rng))
        if not isinstance(ticket, Ticket):
            msg = f"a request with a far deadline was refused: {ticket.reason}; it must be admitted"
            raise TypeError(msg)
        admit.append(seconds)
        ledger.end(ticket, Outcome.CANCELLED, 0.0)
        for samples in (refuse, again):
            refusal, seconds = timed_offer(ledger, Request("r", 16, 64, 0.0, 0.3))
            if not isinstance(refusal, Refusal):
                msg = "a request with an unreachable deadline was admitted; it must be refused"
                raise TypeError(msg)
            samples.append(seconds)
    named = {"admit": admit, "refuse": refuse, "refuse_unchanged": again}
    return {name: microseconds(samples) for name, samples in named.items()}


def build_ledger(length: int, rng: random.Random) -> Ledger:
    """Build a ledger whose slots are full and whose queue holds `length` requests."""
    policy = policy_from_spec({"model": "lab", "mode": "Predictive"})
    ledger = Ledger(policy, rng=random.Random(0))
    steps = tuple(STEP_SECONDS * (1 + 0.1 * batch) for batch in range(SLOTS))
    model = ServiceModel(step_seconds=steps, prefill_base=0.008, prefill_per_token=0.0001)
    for pod in range(PODS):
        ledger.join_pod(f"pod-{pod}", model, 0.0)
    for index in range(PODS * SLOTS + length):
        ledger.offer(far_request(f"q{index}", rng), 0.0)
    if len(ledger.queue) != length:
        msg = f"the queue holds {len(ledger.queue)} requests: must be {length}"
        raise RuntimeError(msg)
    return ledger


def far_request(name: str, rng: random.Random) -> Request:
    """Build a request that always fits, with a deadline that puts it anywhere in the queue."""
    deadline = rng.uniform(FAR_SECONDS, 2 * FAR_SECONDS)
    return Request(name, 16, REFERENCE_MIX.draw(rng), 0.0, deadline)


def timed_offer(ledger: Ledger, request: Request) -> tuple[Ticket | Refusal, float]:
    """Offer a request at time 0 and return the answer and the CPU seconds it took.

    CPU time leaves out moments in which the machine ran something else.
    """
    started = time.thread_time()
    answer = ledger.offer(request, 0.0)
    return answer, time.thread_time() - started


def microseconds(samples: Sequence[float]) -> dict[str, float]:
    """Return p50 and p99 in microseconds."""
    ordered = sorted(samples)
    return {
        f"{name}_us": round((quantile(ordered, share) or 0.0) * 1e6, 1)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }
