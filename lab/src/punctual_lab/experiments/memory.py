"""`punctual-lab memory`: what it costs never to run out of key-value memory."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from punctual_admission.outcomes import Reason
from punctual_admission.policy import Policy
from punctual_admission.service_time import ServiceModel
from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    run_of,
)
from punctual_lab.experiments.tally import add_to_cell, share_good, tally
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.world import Arrival, PodSpec, World

if TYPE_CHECKING:
    from punctual_admission.ticket import Ticket

NAME = "memory"
TITLE = "Memory: requests that do not fit beside each other"
HELP = "share on time and starts without memory, with and without the memory gate"
MODEL = ServiceModel(tuple(0.0084 * (1 + 0.05 * more) for more in range(8)), 0.005, 0.0001)
MEMORY_TOKENS = 2400
PROMPTS, ANSWERS = (50, 400), (32, 64, 128, 256)
USED = (0.2, 0.9)
"""Share of `max_tokens` that answers really have."""
DEADLINE_SECONDS = 6.0
LOADS = (0.7, 1.0, 1.5)
QUICK_LOADS = (1.0,)
RULES: dict[str, dict[str, Any]] = {
    "no gate": {},
    "worst case": {"memory": {"gate": "Enabled"}},
    "learned, 99 %": {"memory": {"gate": "Enabled", "reservation": "Learned"}},
    "learned, 80 %": {
        "memory": {"gate": "Enabled", "reservation": "Learned", "quantilePercent": 80}
    },
}
SECONDS = 300.0

add_arguments = add_common_arguments
run = run_of(__name__)


def build_policy(rule: str) -> Policy:
    """Predictive with learned lengths, and the gate."""
    mode, estimate = reference.MODES["Predictive"], {"outputLength": "Learned"}
    return reference.reference_policy(mode, estimate=estimate, **RULES[rule])


def build_arrivals(load: float, seconds: float, seed: int) -> list[Arrival]:
    """Poisson arrivals of prompts and answers of many sizes."""
    rng = random.Random(seed)
    rate = load / MODEL.cost(sum(PROMPTS) // 2, sum(ANSWERS) / len(ANSWERS) * sum(USED) / 2)
    found, now = [], 0.0
    while (now := now + rng.expovariate(rate)) < seconds:
        prompt, most = rng.randint(*PROMPTS), rng.choice(ANSWERS)
        made = max(round(most * rng.uniform(*USED)), 1)
        found.append(Arrival(now, prompt, most, DEADLINE_SECONDS, made))
    return found


class Watched(World):
    """Counts the starts after which the residents would come to need more than there is."""

    starts = short = 0

    def _dispatch(self, ticket: Ticket) -> None:
        super()._dispatch(ticket)
        pod = next(pod for pod in self.ledger.all_pods if pod.id == ticket.pod)
        arrivals = [self._by_id[one.request.id].arrival for one in pod.residents.values()]
        needed = sum(arrival.prompt_tokens + arrival.actual_tokens for arrival in arrivals)
        self.starts += 1
        self.short += needed > MEMORY_TOKENS


def measure(options: Options) -> Summary:
    """Counts per load and rule."""
    tasks: list[Summary] = [
        {"load": load, "rule": rule, "seed": seed,
         "seconds": SECONDS / 3 if options.quick else SECONDS}
        for load in (QUICK_LOADS if options.quick else LOADS)
        for rule in RULES
        for seed in options.seeds(4, 2)
    ]  # fmt: skip
    cells: dict[str, Any] = {}
    for task, result in zip(tasks, options.run(NAME, play, tasks), strict=True):
        add_to_cell(cells, f"{task['load']:g}", task["rule"], result)
    return {"cells": cells}


def play(load: float, rule: str, seed: int, seconds: float) -> Summary:
    """One rule on one workload."""
    world = Watched(build_policy(rule), [PodSpec(MODEL, memory_tokens=MEMORY_TOKENS)])
    records = world.run(build_arrivals(load, seconds, seed))
    counts = tally(records)
    counts["no_memory"] = sum(record.reason is Reason.MEMORY_EXHAUSTED for record in records)
    counts["starts"], counts["short"] = world.starts, world.short
    return counts


def describe(summary: Summary) -> list[Block]:
    """One table: loads by rule."""
    rows = [
        (load, rule, f"{share_good(counts):.1%}", f"{counts['no_memory'] / counts['total']:.1%}",
         f"{counts['short'] / counts['starts']:.2%}",
         f"{(counts['late'] + counts['expired']) / counts['total']:.2%}")
        for load, cell in summary["cells"].items()
        for rule, counts in cell.items()
    ]  # fmt: skip
    columns = ("load", "rule", "in time", "refused for memory", "starts without memory",
               "late or expired")  # fmt: skip
    return [
        Text(
            f"A pod of {MODEL.slots} slots with memory for {MEMORY_TOKENS} tokens; answers make "
            f"{USED[0]:.0%} to {USED[1]:.0%} of their `max_tokens`. The simulated pod goes on "
            "without memory; a real one then throws somebody's work away and makes it again, which "
            "no forecast knows of. The gate refuses instead. Its price is what would have run "
            "beside the others after all: the less of the worst case is reserved, the smaller."
        ),
        TableBlock(columns, tuple(rows), "Requests on a pod that is short of memory"),
        Command("punctual-lab memory"),
    ]
