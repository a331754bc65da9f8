"""What the pod publishes of itself, and its last word on a newcomer."""

from __future__ import annotations

import time
import uuid

from punctual_model_server.engine.protocol import Calibration
from punctual_model_server.engine_client import Engine
from punctual_model_server.forecast import (
    Finish,
    LastWord,
    Work,
    drain_seconds,
    forecast,
    last_word,
    under_way,
    wait_seconds,
    work_seconds,
)
from punctual_model_server.generation import Generation
from punctual_model_server.settings import Settings

INSTANCE = str(uuid.uuid4())


class Capacity:
    """Reads the engine's state; `instance` names this start of the process."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings
        self.instance = INSTANCE

    @property
    def calibration(self) -> Calibration | None:
        """The measured service model, `None` before it is known."""
        return None if self._engine.ready is None else self._engine.ready.calibration

    def residents(self) -> tuple[list[Work], list[Work]]:
        """Return the running and the waiting requests as the forecast sees them."""
        now = time.monotonic()
        engine = self._engine
        return [g.work(now) for g in engine.running], [g.work(now) for g in engine.waiting]

    def finishes(self) -> list[Finish]:
        """Return the predicted finish of everything that is here."""
        if (model := self.calibration) is None:
            return []
        running, waiting = self.residents()
        done = self._done(model, running, waiting)
        return forecast(model, self._engine.ratio, running, waiting, done)

    def drain_seconds(self) -> float:
        """Return the time until the pod is empty if nothing more comes."""
        return drain_seconds(self.finishes())

    def inflight_gpu_seconds(self) -> float:
        """Return the engine time that the requests here still need."""
        if (model := self.calibration) is None:
            return 0.0
        return work_seconds(model, self._engine.ratio, *self.residents())

    def last_word(self, newcomer: Work) -> LastWord:
        """Say whether the newcomer can keep its deadline without breaking a resident's."""
        if (model := self.calibration) is None:
            return LastWord(False, 0.0)
        running, waiting = self.residents()
        done = self._done(model, running, waiting)
        return last_word(model, self._engine.ratio, running, waiting, newcomer, done)

    def _done(self, model: Calibration, running: list[Work], waiting: list[Work]) -> float:
        """Return how far the engine's present step or prefill has come."""
        engine = self._engine
        elapsed = engine.age_seconds
        if waiting:  # it cannot have been read for longer than it has been here
            elapsed = min(elapsed, time.monotonic() - engine.waiting[0].arrived)
        return under_way(model, engine.ratio, running, waiting, elapsed)

    def kv(self) -> dict[str, int]:
        """Return the KV figures in tokens: all there is, written, and promised to requests."""
        ready, settings = self._engine.ready, self._settings
        everything = self._engine.generations.values()
        return {
            "bytes_per_token": 0 if ready is None else ready.kv_bytes_per_token,
            "total_tokens": 0 if ready is None else settings.slots * ready.max_context,
            "used_tokens": sum(g.prompt_tokens + g.generated for g in everything if g.generated),
            "reserved_tokens": sum(g.prompt_tokens + g.max_tokens for g in everything),
        }

    def document(self) -> dict[str, object]:
        """Return the body of `GET /v1/capacity`."""
        engine, model = self._engine, self.calibration
        finishes = self.finishes()
        return {
            "model": self._settings.served_model_name,
            "instance": self.instance,
            "state": engine.state,
            "seq": engine.seq,
            "age_seconds": round(engine.age_seconds, 6),
            "max_context": 0 if engine.ready is None else engine.ready.max_context,
            "slots": self._settings.slots,
            "step_seconds": [] if model is None else model.step_seconds,
            "prefill_seconds": {
                "base": 0.0 if model is None else model.prefill_base,
                "per_token": 0.0 if model is None else model.prefill_per_token,
            },
            "ratio": engine.ratio,
            "running": [_entry(g) for g in engine.running],
            "waiting": [_entry(g) for g in engine.waiting],
            "inflight_gpu_seconds": self.inflight_gpu_seconds(),
            "drain_seconds": drain_seconds(finishes),
            "wait_seconds": wait_seconds(self._settings.slots, finishes),
            "kv": self.kv(),
            "calibrated_at": 0.0 if model is None else model.calibrated_at,
        }


def _entry(generation: Generation) -> dict[str, object]:
    left = None if generation.deadline is None else generation.deadline - time.monotonic()
    return {
        "id": generation.name,
        "prompt_tokens": generation.prompt_tokens,
        "generated": generation.generated,
        "max_tokens": generation.max_tokens,
        "remaining_ms": None if left is None else int(left * 1000),
    }
