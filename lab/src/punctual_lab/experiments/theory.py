"""`punctual-lab theory`: the simulator against closed forms, within stated standard error."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from punctual_admission.outcomes import Outcome
from punctual_admission.policy import Policy, policy_from_spec
from punctual_admission.service_time import ServiceModel
from punctual_lab.experiments import formulas
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    options_of,
    run_experiment,
)
from punctual_lab.experiments.reference import INTERCEPT_SECONDS, TOKEN_SECONDS
from punctual_lab.experiments.tally import mean_and_error
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.margins import NoMargin
from punctual_lab.simulate.world import Arrival, PodSpec, Record, World
from punctual_lab.traces import REFERENCE_MIX

if TYPE_CHECKING:
    import argparse

NAME = "theory"
TITLE = "The simulator against queueing theory"
HELP = "compare the simulator with M/M/1, M/M/1/K, Erlang C and Pollaczek-Khinchine"
STEP_SECONDS = 1e-4
"""Token time of the exponential services: rounding to whole tokens changes E[S^2] by 1e-6."""
ARRIVALS, QUICK_ARRIVALS = 20_000, 4_000
PATIENCE_SECONDS = 1e6
LIMIT = 4.0
"""Standard errors by which a mean may differ: about 1 false alarm in 16,000 comparisons."""


@dataclass(frozen=True, slots=True)
class Case:
    """One queue with a closed form; `load` is rho per server, services have mean `service`."""

    name: str
    load: float
    mix: bool = False
    """Lengths of the reference instead of exponential ones."""
    pods: int = 1
    slots: int = 1
    places: int | None = None
    """Most requests in the system; None: no limit."""
    service: float = 0.1

    @property
    def servers(self) -> int:
        """Requests served at once."""
        return self.pods * self.slots

    @property
    def rate(self) -> float:
        """Arrivals per second."""
        return self.load * self.servers / self.moments()[0]

    def moments(self) -> tuple[float, float]:
        """E[S] and E[S^2]."""
        if not self.mix:
            return self.service, 2 * self.service**2
        times = [INTERCEPT_SECONDS + TOKEN_SECONDS * n for n in REFERENCE_MIX.tokens]
        shares = REFERENCE_MIX.shares
        first = sum(p * s for p, s in zip(shares, times, strict=True))
        return first, sum(p * s * s for p, s in zip(shares, times, strict=True))

    def expected(self) -> dict[str, float]:
        """The closed forms: mean wait in seconds, and what else has one."""
        mean, squared = self.moments()
        if self.places is not None:
            return {
                "wait": formulas.mm1k_wait(self.rate, mean, self.places),
                "refused": formulas.mm1k_blocking(self.load, self.places),
            }
        if self.servers > 1:
            return {
                "wait": formulas.mmc_wait(self.rate, mean, self.servers),
                "waiting": formulas.erlang_c(self.rate, mean, self.servers),
            }
        return {"wait": formulas.pollaczek_khinchine_wait(self.rate, mean, squared)}


CASES = (
    Case("M/M/1", 0.5),
    Case("M/M/1", 0.8),
    Case("M/G/1, lengths 4/16/64", 0.5, mix=True),
    Case("M/G/1, lengths 4/16/64", 0.8, mix=True),
    Case("M/M/1/5", 0.8, places=5),
    Case("M/M/1/5", 1.5, places=5),
    Case("M/M/3, three pods", 0.7, pods=3),
    Case("M/M/4, four slots", 0.7, slots=4),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_common_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run the comparison; 1 when a mean differs by more than `LIMIT` standard errors."""
    summary = run_experiment(sys.modules[__name__], options_of(args))
    return int(any(abs(row["deviation"]) > LIMIT for row in summary["rows"]))


def measure(options: Options) -> Summary:
    """Means over independent replications, with their standard errors, beside the closed forms."""
    count = QUICK_ARRIVALS if options.quick else ARRIVALS
    seeds = options.seeds(20, 10)
    tasks = [
        {"case": case, "seed": seed, "count": count} for case in range(len(CASES)) for seed in seeds
    ]
    results = options.run(NAME, replicate, tasks)
    rows = []
    for number, case in enumerate(CASES):
        ours = [r for task, r in zip(tasks, results, strict=True) if task["case"] == number]
        rows.extend(_compare(case, ours))
    return {"rows": rows, "replications": len(seeds), "arrivals": count, "limit": LIMIT}


def _compare(case: Case, results: list[Summary]) -> list[dict[str, Any]]:
    rows = []
    for quantity, expected in case.expected().items():
        mean, error = mean_and_error([result[quantity] for result in results])
        rows.append(
            {
                "queue": case.name,
                "load": case.load,
                "quantity": quantity,
                "expected": expected,
                "mean": mean,
                "standard_error": error,
                "deviation": (mean - expected) / error,
            }
        )
    return rows


def replicate(case: int, seed: int, count: int) -> Summary:
    """One replication: mean wait of those served, shares that waited and were refused.

    The first tenth is left out, for the queue starts empty.
    """
    one = CASES[case]
    records = simulate_case(one, seed, count)[count // 10 :]
    waits = [r.started - r.arrival.at for r in records if r.started is not None]
    step = STEP_SECONDS * (one.slots > 1)
    return {
        "wait": sum(waits) / len(waits),
        "waiting": sum(wait > step for wait in waits) / len(waits),
        "refused": sum(r.outcome is Outcome.REFUSED for r in records) / len(records),
    }


def simulate_case(case: Case, seed: int, count: int) -> list[Record]:
    """The records of one replication."""
    rng = random.Random(seed)
    at, arrivals = 0.0, []
    for _ in range(count):
        at += rng.expovariate(case.rate)
        arrivals.append(Arrival(at, 0, _length(case, rng), PATIENCE_SECONDS))
    pods = [PodSpec(_model(case))] * case.pods
    return World(_policy(case), pods, sojourns=NoMargin(), services=NoMargin()).run(arrivals)


def _length(case: Case, rng: random.Random) -> int:
    if case.mix:
        return REFERENCE_MIX.draw(rng)
    return max(1, round(rng.expovariate(STEP_SECONDS / case.service)))


def _model(case: Case) -> ServiceModel:
    if case.mix:
        return ServiceModel((TOKEN_SECONDS,), INTERCEPT_SECONDS + TOKEN_SECONDS)
    prefill = STEP_SECONDS if case.slots == 1 else 0.0
    return ServiceModel((STEP_SECONDS,) * case.slots, prefill)


def _policy(case: Case) -> Policy:
    mode = "Unlimited" if case.places is None else "Bounded"
    queue = {"order": "FirstInFirstOut"}
    if case.places is not None:
        return policy_from_spec(
            {"model": "m", "mode": mode, "overdue": "Finish",
             "queue": {**queue, "maximumRequests": case.places - case.servers}}
        )  # fmt: skip
    return policy_from_spec({"model": "m", "mode": mode, "overdue": "Finish", "queue": queue})


def describe(summary: Summary) -> list[Block]:
    """The comparison as a table."""
    rows = tuple(
        (
            row["queue"],
            f"{row['load']:g}",
            {"wait": "mean wait, ms", "waiting": "share that waits", "refused": "share refused"}[
                row["quantity"]
            ],
            *(f"{row[key] * _scale(row):.4g}" for key in ("expected", "mean", "standard_error")),
            f"{row['deviation']:+.1f}",
        )
        for row in summary["rows"]
    )
    return [
        Text(
            "The simulator runs the gateway's own ledger. Where a queue has a closed form, its "
            f"means over {summary['replications']} runs of {summary['arrivals']:,} arrivals must "
            f"lie within {summary['limit']:g} standard errors of it."
        ),
        TableBlock(
            ("queue", "load", "quantity", "theory", "simulated", "std error", "deviation"),
            rows,
            "Theory and simulation; deviation in standard errors",
        ),
        Command("punctual-lab theory"),
    ]


def _scale(row: dict[str, Any]) -> float:
    return 1000.0 if row["quantity"] == "wait" else 1.0
