"""`punctual-lab burst`: thirty at once, and a burst every ten seconds until a mode fails."""

from __future__ import annotations

from typing import Any

from punctual_admission.outcomes import Outcome
from punctual_lab.experiments import reference
from punctual_lab.experiments.frame import (
    Options,
    Summary,
    add_common_arguments,
    run_of,
)
from punctual_lab.experiments.optimum import bound_on_time
from punctual_lab.experiments.tally import add_tallies, share_good, tally
from punctual_lab.report.document import Block, Command, TableBlock, Text
from punctual_lab.simulate.world import PodSpec, World
from punctual_lab.traces import build_burst_trace, build_periodic_burst_trace

NAME = "burst"
TITLE = "Bursts: thirty at once, and every ten seconds"
HELP = "play bursts of growing size against every mode"
AT_ONCE = 30
PERIOD_SECONDS = 10.0
SIZES = (*range(2, 41, 2), 50, 60, 80, 100)
QUICK_SIZES = (4, 8, 12, 16, 24, 40, 80)
PERIODS = 30

add_arguments = add_common_arguments
run = run_of(__name__)


def measure(options: Options) -> Summary:
    """Counts for one burst, and per mode the size at which it first fails."""
    seeds = options.seeds(20, 5)
    sizes = QUICK_SIZES if options.quick else SIZES
    tasks: list[dict[str, Any]] = [{"size": AT_ONCE, "seed": seed, "bursts": 1} for seed in seeds]
    tasks += [{"size": size, "seed": options.seed, "bursts": PERIODS} for size in sizes]
    results = options.run(NAME, play, tasks)
    once, repeated = results[: len(seeds)], results[len(seeds) :]
    return {
        "at_once": {
            name: add_tallies([result["modes"][name] for result in once])
            for name in reference.MODES
        },
        "bound": sum(result["bound"] for result in once),
        "bursts": len(seeds),
        "first_failures": {name: _first_failures(name, repeated) for name in reference.MODES},
        "shares": {
            name: [share_good(result["modes"][name]) for result in repeated]
            for name in reference.MODES
        },
        "sizes": list(sizes),
    }


def play(size: int, seed: int, bursts: int) -> Summary:
    """One workload of bursts in every mode."""
    if bursts == 1:
        trace = build_burst_trace(count=size, seed=seed, prompt_tokens=0)
    else:
        trace = build_periodic_burst_trace(
            count=size,
            period_seconds=PERIOD_SECONDS,
            duration_seconds=PERIOD_SECONDS * bursts,
            seed=seed,
            prompt_tokens=0,
        )
    arrivals = reference.arrivals_of(trace)
    model = reference.reference_model()
    modes = {
        name: tally(World(reference.reference_policy(mode), [PodSpec(model)]).run(arrivals))
        for name, mode in reference.MODES.items()
    }
    load = reference.offered_load(arrivals, PERIOD_SECONDS * bursts, model)
    return {"modes": modes, "bound": bound_on_time(arrivals, model), "load": load, "size": size}


def _first_failures(name: str, results: list[Summary]) -> dict[str, Any]:
    """The first size and load with somebody not on time, and with a broken promise."""
    found: dict[str, Any] = {"not_all": None, "broken": None}
    for result in results:
        counts = result["modes"][name]
        place = {"size": result["size"], "load": result["load"]}
        if found["not_all"] is None and counts["good"] < counts["total"]:
            found["not_all"] = place
        if found["broken"] is None and counts["late"] + counts["expired"] > 0:
            found["broken"] = place
    return found


def describe(summary: Summary) -> list[Block]:
    """Two tables: one burst, and bursts of growing size."""
    bursts = summary["bursts"]
    outcomes = (Outcome.GOOD, Outcome.LATE, Outcome.REFUSED, Outcome.EXPIRED)
    once = tuple(
        (name, *(f"{counts[outcome] / bursts:.1f}" for outcome in outcomes))
        for name, counts in summary["at_once"].items()
    )
    failures = tuple(
        (name, _place(found["not_all"]), _place(found["broken"]))
        for name, found in summary["first_failures"].items()
    )
    return [
        Text(
            "A burst is where a limit on the count is furthest from what a deadline needs: eight "
            "short requests are gone in 0.3 s, eight long ones take 4.3 s."
        ),
        TableBlock(
            ("mode", *(outcome.value for outcome in outcomes)),
            (*once, ("bound", f"{summary['bound'] / bursts:.1f}", "", "", "")),
            f"{AT_ONCE} requests at one instant, deadline 2 s, mean of {bursts} bursts",
        ),
        TableBlock(
            ("mode", "first not all in time", "first broken promise"),
            failures,
            f"A burst every {PERIOD_SECONDS:g} s, {PERIODS} times: requests a burst (load)",
        ),
        Command("punctual-lab burst"),
    ]


def _place(found: dict[str, Any] | None) -> str:
    return "never" if found is None else f"{found['size']} ({found['load']:.2f})"
