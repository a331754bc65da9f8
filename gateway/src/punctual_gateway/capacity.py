"""What a pod says of itself: our `/v1/capacity`, or what other servers publish."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from punctual_admission.policy import Backend
from punctual_admission.pool import Foreign
from punctual_admission.service_time import RATIO_BOUNDS, ServiceModel


class CapacityError(ValueError):
    """The report makes no sense; the message says which part."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A request on the pod, by the pod's account."""

    id: str
    foreign: Foreign


@dataclass(frozen=True, slots=True)
class Report:
    """One pod at one moment."""

    model: str
    instance: str
    state: str
    """`starting`, `ready`, `draining` or `dead`."""
    service: ServiceModel | None
    """None while it is not calibrated."""
    ratio: float = 1.0
    """Its own measurement of actual over published times."""
    max_context: int | None = None
    age: float = 0.0
    """Seconds since its engine last told its state."""
    residents: tuple[Resident, ...] = ()
    memory_tokens: int | None = None
    """Tokens of key-value memory, where it tells."""
    raw: dict[str, Any] | None = None


def read_capacity(given: object) -> Report:
    """Read the body of `/v1/capacity`; raises CapacityError."""
    if not isinstance(given, dict):
        raise CapacityError(f"the report must be an object, got {type(given).__name__}")
    try:
        state = str(given["state"])
        return Report(
            model=str(given["model"]),
            instance=str(given["instance"]),
            state=state,
            service=_service(given) if state == "ready" else None,
            ratio=_ratio(given.get("ratio", 1.0)),
            max_context=_positive(given.get("max_context")),
            age=_finite(given.get("age_seconds", 0.0)),
            residents=_residents(given),
            memory_tokens=_positive((given.get("kv") or {}).get("total_tokens")),
            raw=given,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CapacityError(f"the report must follow /v1/capacity: {error!r}") from error


def _service(given: dict[str, Any]) -> ServiceModel:
    steps = tuple(_finite(step) for step in given["step_seconds"])
    # A measured table may fall a little from one batch size to the next: noise, taken out here.
    rising = tuple(accumulate(steps, max))
    prefill = given["prefill_seconds"]
    return ServiceModel(rising, _finite(prefill["base"]), _finite(prefill["per_token"]))


def _ratio(value: object) -> float:
    low, high = RATIO_BOUNDS
    return min(max(_finite(value), low), high)


def _residents(given: dict[str, Any]) -> tuple[Resident, ...]:
    running = [_resident(entry, started=True) for entry in given.get("running", ())]
    waiting = [_resident(entry, started=False) for entry in given.get("waiting", ())]
    return (*running, *waiting)


def _resident(entry: dict[str, Any], *, started: bool) -> Resident:
    generated = int(entry.get("generated", 0)) if started else 0
    longest, prompt = int(entry["max_tokens"]), int(entry.get("prompt_tokens", 0))
    remaining, unstarted = max(longest - generated, 1), None if generated else prompt
    return Resident(str(entry["id"]), Foreign(remaining, unstarted, prompt + longest))


def profile(backend: Backend) -> ServiceModel:
    """The service model that the policy assumes of pods that do not publish one."""
    table = backend.step_microseconds or (10_000,)
    longest = (*table, *[table[-1]] * (backend.slots - len(table)))
    return ServiceModel(
        tuple(step / 1e6 for step in longest[: backend.slots]),
        backend.prefill_base_microseconds / 1e6,
        backend.prefill_token_microseconds / 1e6,
    )


_GAUGES = re.compile(
    r"^vllm:num_requests_(running|waiting)(?:\{[^}]*\})? ([0-9.eE+-]+)", re.MULTILINE
)


def read_load(metrics: str) -> int | None:
    """Requests on a pod by vLLM's metric names; None where it has none of them."""
    values = [_finite(value) for _, value in _GAUGES.findall(metrics)]
    return round(sum(values)) if values else None


_CACHE = re.compile(r"^vllm:cache_config_info\{([^}]*)\}", re.MULTILINE)


def read_memory(metrics: str) -> int | None:
    """Tokens of key-value memory by vLLM's metrics: blocks times tokens a block, if it tells."""
    found = _CACHE.search(metrics)
    labels = dict(re.findall(r'(\w+)="([^"]*)"', found[1])) if found else {}
    sizes = [labels.get(name, "") for name in ("num_gpu_blocks", "block_size")]
    return int(sizes[0]) * int(sizes[1]) if all(map(str.isdigit, sizes)) else None


def read_models(given: object) -> dict[str, int | None]:
    """Model names and contexts out of `/v1/models`; raises CapacityError."""
    data = given.get("data") if isinstance(given, dict) else None
    if not isinstance(data, list):
        raise CapacityError("the list of models must have `data`")
    return {
        str(entry["id"]): _positive(entry.get("max_model_len"))
        for entry in data
        if isinstance(entry, dict) and "id" in entry
    }


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _finite(value: object) -> float:
    number = float(value)  # type: ignore[arg-type]  # a TypeError is what the caller expects
    if not math.isfinite(number):
        raise ValueError(f"a number must be finite, got {number}")
    return number
