"""What one decision costs with 10, 100 and 1,000 requests waiting.

    .venv/bin/python tests/benchmarks/decision_cost.py [--decisions 2000]

Each figure is the time of `Ledger.offer` for a request that is refused, so the queue stays as it is. `steady`
asks again and again of one state; `after a token` lets a token come between two decisions, so that
the forecast is made anew each time; `ahead` gives the newcomer an earlier deadline than most of the queue.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from punctual_admission.ledger import Ledger
from punctual_admission.policy import policy_from_spec
from punctual_admission.service_time import ServiceModel
from punctual_admission.ticket import Request, Ticket

WAITING = (10, 100, 1000)
POOLS = {"1 pod, 1 slot": (1, 1), "4 pods, 8 slots": (4, 8)}


def crowded(waiting: int, pods: int, slots: int) -> tuple[Ledger, Ticket]:
    """A ledger with `waiting` requests in the queue, and one that runs."""
    ledger = Ledger(policy_from_spec({"model": "m", "pool": {"headroomPercent": 0}}))
    model = ServiceModel(tuple(0.008 + 0.0004 * extra for extra in range(slots)), 0.001, 0.0001)
    for index in range(pods):
        ledger.join_pod(f"pod-{index}", model, 0.0)
    running = None
    for number in range(waiting + pods * slots):
        answer = ledger.offer(Request(f"r{number}", 20, 16, 0.0, 1000.0 + number % 7), 0.0)
        assert isinstance(answer, Ticket)  # noqa: S101
        running = running or answer
    assert running is not None  # noqa: S101
    assert len(ledger.queue) == waiting  # noqa: S101
    return ledger, running


def measure(kind: str, waiting: int, pods: int, slots: int, decisions: int) -> dict[str, float]:
    """Microseconds per decision: median and 99th percentile."""
    ledger, running = crowded(waiting, pods, slots)
    deadline = 0.001 if kind == "ahead" else 10_000.0
    tokens = 16 if kind == "ahead" else 10_000_000
    spent = []
    for number in range(decisions):
        if kind == "after a token":
            ledger.progressed(running, 0.0)
            running.generated = 1
        request = Request(f"n{number}", 20, tokens, 0.0, deadline)
        start = time.perf_counter()
        ledger.offer(request, 0.0)
        spent.append((time.perf_counter() - start) * 1e6)
    spent.sort()
    return {"p50_us": statistics.median(spent), "p99_us": spent[int(len(spent) * 0.99)]}


def main() -> None:
    """Print a table and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=2000)
    decisions = parser.parse_args().decisions
    results = {}
    for pool, (pods, slots) in POOLS.items():
        for kind in ("steady", "after a token", "ahead"):
            for waiting in WAITING:
                figures = measure(kind, waiting, pods, slots, decisions)
                results[f"{pool}, {kind}, {waiting} waiting"] = figures
                print(
                    f"{pool:16} {kind:14} {waiting:5} waiting "  # noqa: T201
                    f"p50 {figures['p50_us']:8.1f} us  p99 {figures['p99_us']:8.1f} us"
                )
    print(json.dumps(results))  # noqa: T201


if __name__ == "__main__":
    main()
