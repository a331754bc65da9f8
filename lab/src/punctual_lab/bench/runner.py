"""Runs the whole benchmark: each part in a stack of its own, nothing left behind."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from punctual_lab.aio import run_async
from punctual_lab.bench.decision import QUEUE_LENGTHS, measure_decisions
from punctual_lab.bench.forecast_error import build_trace, measure_forecast, summarise_forecast
from punctual_lab.bench.forward import CONNECTIONS, DIRECT, measure_forwarding
from punctual_lab.bench.others import STARTERS, start_others, start_upstream
from punctual_lab.bench.refusal import measure_refusals
from punctual_lab.bench.usage import read_usage
from punctual_lab.compare.runner import start_bare_refuser
from punctual_lab.load.capacity import fetch_capacity
from punctual_lab.policies import PREDICTIVE, build_policy, write_policy
from punctual_lab.processes import Stack
from punctual_lab.progress import build_progress, track_requests

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

FORECAST_SLOTS = (1, 4)
REFUSAL_SERVER = ("--engine=sim", "--sim-step-ms=20", "--sim-prefill-ms=5,0.01")
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """How long each part takes and which programs are compared."""

    rounds: int = 3
    seconds: float = 1.5
    bursts: int = 20
    forecast_seconds: float = 20.0
    decision_rounds: int = 400
    programs: tuple[str, ...] = tuple(STARTERS)
    seed: int = 1


def run_bench(plan: BenchPlan, folder: Path, console: Console) -> dict[str, Any]:
    """Run all parts and return their numbers as one object."""
    folder.mkdir(parents=True, exist_ok=True)
    decision = _decision(plan, console)
    refusal = _refusal(plan, folder, console)
    forwarding, missing, memory = _forwarding(plan, folder, console)
    forecast, model_memory = _forecast(plan, folder, console)
    return {
        "machine": describe_machine(),
        "decision": decision,
        "refusal": refusal,
        "forwarding": forwarding,
        "missing": missing,
        "forecast_error": forecast,
        "memory_mib": {**memory, **model_memory},
    }


def describe_machine() -> dict[str, Any]:
    """Return what the numbers were measured on."""
    return {
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _decision(plan: BenchPlan, console: Console) -> dict[str, Any]:
    with build_progress(console) as progress:
        task = progress.add_task("decisions", total=len(QUEUE_LENGTHS))
        return measure_decisions(
            rounds=plan.decision_rounds, seed=plan.seed, on_step=lambda: progress.advance(task)
        )


def _refusal(plan: BenchPlan, folder: Path, console: Console) -> dict[str, Any]:
    with Stack(folder / "logs") as stack, build_progress(console) as progress:
        task = progress.add_task("refusals", total=2 * plan.rounds)
        model = stack.start_model_server("refusal-model", slots=1, extra=REFUSAL_SERVER)
        policy = build_policy(PREDICTIVE, overdue="Cancel")
        policy["spec"]["deadline"]["maximumMilliseconds"] = 600_000
        path = write_policy(folder / "refusal" / "policy.yaml", policy)
        gateway = stack.start_gateway(path, [model.url], name="refusal-gateway")
        return run_async(
            measure_refusals(
                gateway,
                start_bare_refuser(stack),
                rounds=plan.rounds,
                seconds=plan.seconds,
                bursts=plan.bursts,
                on_step=lambda: progress.advance(task),
            )
        )


def _forwarding(
    plan: BenchPlan, folder: Path, console: Console
) -> tuple[dict[str, Any], dict[str, str], dict[str, float]]:
    with Stack(folder / "logs") as stack:
        console.print("starting the programs to compare (LiteLLM is installed at first use) ...")
        upstream = start_upstream(stack)
        running, missing = start_others(stack, upstream.url, folder, list(plan.programs))
        servers = {DIRECT: upstream, **running}
        steps = plan.rounds * len(servers) * len(CONNECTIONS)
        with build_progress(console) as progress:
            task = progress.add_task("forwarding", total=steps)
            results = run_async(
                measure_forwarding(
                    servers,
                    rounds=plan.rounds,
                    seconds=plan.seconds,
                    on_step=lambda: progress.advance(task),
                )
            )
        memory = {
            name: to_mebibytes(read_usage(server.pid).resident_bytes)
            for name, server in running.items()
        }
    return results, missing, memory


def _forecast(
    plan: BenchPlan, folder: Path, console: Console
) -> tuple[dict[str, Any], dict[str, float]]:
    results: dict[str, Any] = {}
    memory: dict[str, float] = {}
    for slots in FORECAST_SLOTS:
        with Stack(folder / "logs") as stack:
            model = stack.start_model_server(f"forecast-model-{slots}", slots=slots)
            path = write_policy(folder / "forecast" / "policy.yaml", build_policy(PREDICTIVE))
            gateway = stack.start_gateway(path, [model.url], name=f"forecast-gateway-{slots}")
            trace = build_trace(fetch_capacity(model.url), plan.forecast_seconds, plan.seed)
            with track_requests(console, f"forecast, {slots} slot(s)", len(trace)) as on_row:
                rows = run_async(measure_forecast(gateway.url, trace, on_row))
            results[str(slots)] = summarise_forecast(rows)
            memory[f"model server, {slots} slot(s)"] = to_mebibytes(
                read_usage(model.pid).resident_bytes
            )
    return results, memory


def to_mebibytes(count: int) -> float:
    """Return bytes as MiB with one decimal."""
    return round(count / _MEBIBYTE, 1)
