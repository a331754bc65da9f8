"""A world whose number of pods an autoscaler sets, by one of five signals.

The gateway's own admission code and its own arithmetic of demand run here; a pod that is asked for
works one pod start later, and one that is given up finishes what runs on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from punctual_admission.demand import Demand, Reading
from punctual_admission.outcomes import Outcome
from punctual_lab.simulate.engine import NEVER, Engine
from punctual_lab.simulate.hpa import SYNC_SECONDS, Autoscaler, Metric, Target
from punctual_lab.simulate.world import Arrival, PodSpec, Record, World

if TYPE_CHECKING:
    from punctual_admission.policy import Policy
    from punctual_admission.service_time import ServiceModel
    from punctual_admission.ticket import Ticket
    from punctual_lab.load.retry import RetryBehaviour


class Signal(StrEnum):
    """What the autoscaler looks at."""

    ADMITTED_WAIT = "mean admitted wait"
    REJECTION_RATIO = "rejection ratio"
    UTILISATION = "utilisation per pod"
    ADMITTED_WORK = "admitted work"
    OFFERED_WORK = "offered work"


TARGETS = {
    Signal.ADMITTED_WAIT: (Target.VALUE, 0.5),
    Signal.REJECTION_RATIO: (Target.VALUE, 0.01),
    Signal.UTILISATION: (Target.VALUE, 0.7),
    Signal.ADMITTED_WORK: (Target.AVERAGE_VALUE, 0.7),
    Signal.OFFERED_WORK: (Target.AVERAGE_VALUE, 0.7),
}
"""Target type and target of each signal: seconds, share, share, GPU-seconds per second twice."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The state at one sync of the autoscaler; `load` is the signal's value, None: unknown."""

    at: float
    pods: int
    ready: int
    load: float | None


class Fleet(World):
    """Plays arrivals for so many seconds while the autoscaler looks every 15 seconds."""

    def __init__(
        self,
        policy: Policy,
        model: ServiceModel,
        autoscaler: Autoscaler,
        signal: Signal,
        *,
        pod_start: float,
        seconds: float,
        pods: int,
        target: float | None = None,
        retry: RetryBehaviour | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(policy, [PodSpec(model)] * pods, seed=seed, retry=retry)
        self.samples: list[Sample] = []
        self.pod_seconds = 0.0
        self._model, self._autoscaler, self._signal = model, autoscaler, signal
        self._target = TARGETS[signal][1] if target is None else target
        self._pod_start = pod_start
        self._pods = dict.fromkeys(self.engines, True)
        """Pods that are wanted, oldest first, and whether each is ready."""
        self._numbers = pods
        self._offered, self._admitted = Demand(0.0), Demand(0.0)
        self._retired_busy = 0.0
        self._busy: list[tuple[float, float]] = []
        """Busy seconds of all pods and ready pod-seconds at the last syncs."""
        self._ready_seconds = 0.0
        for tick in range(1, int(seconds / SYNC_SECONDS) + 1):
            self.at(tick * SYNC_SECONDS, self._sync_autoscaler)

    # --- what the gateway counts -------------------------------------------------------------

    def _arrive(self, arrival: Arrival, attempt: int) -> Record:
        cost = self._model.cost(arrival.prompt_tokens, arrival.max_tokens)
        if attempt == 1:
            self._offered.arrive(self.now, cost, arrival.prompt_tokens, arrival.max_tokens)
        record = super()._arrive(arrival, attempt)
        if record.outcome is Outcome.REFUSED:
            if attempt == 1:
                self._offered.reject(self.now)
        else:
            self._admitted.arrive(self.now, cost, arrival.prompt_tokens, arrival.max_tokens)
        return record

    def _dispatch(self, ticket: Ticket) -> None:
        super()._dispatch(ticket)
        self._offered.start(self.now, self.now - ticket.request.arrival)

    def _on_ended(self, ticket: Ticket) -> None:
        super()._on_ended(ticket)
        if ticket.outcome is Outcome.EXPIRED:
            self._offered.reject(self.now)

    # --- the autoscaler's loop ---------------------------------------------------------------

    def _sync_autoscaler(self) -> None:
        ready = sum(self._pods.values())
        self.pod_seconds += len(self._pods) * SYNC_SECONDS
        self._ready_seconds += ready * SYNC_SECONDS
        value = self._read()
        metric = Metric(TARGETS[self._signal][0], self._target, value)
        wanted = self._autoscaler.decide(self.now, len(self._pods), ready, [metric])
        self.samples.append(Sample(self.now, len(self._pods), ready, value))
        self._scale(wanted)

    def _read(self) -> float | None:
        if self._signal is Signal.UTILISATION:
            return self._utilisation()
        demand = self._admitted if self._signal is Signal.ADMITTED_WORK else self._offered
        reading = demand.read(self.now, self.ledger.queued_work)
        return None if reading is None else self._of(reading)

    def _of(self, reading: Reading) -> float | None:
        if self._signal is Signal.ADMITTED_WAIT:
            return reading.queue_wait_mean
        if self._signal is Signal.REJECTION_RATIO:
            return reading.rejection_share
        return reading.offered_load

    def _utilisation(self) -> float | None:
        busy = self._retired_busy + sum(engine.busy_seconds for engine in self._engines)
        self._busy = [*self._busy[-4:], (busy, self._ready_seconds)]
        spent = self._ready_seconds - self._busy[0][1]
        return (busy - self._busy[0][0]) / spent if len(self._busy) == 5 and spent else None

    # --- pods --------------------------------------------------------------------------------

    def _scale(self, wanted: int) -> None:
        while len(self._pods) < wanted:
            self._ask_for_pod()
        while len(self._pods) > wanted:
            self._give_up_pod()
        self._forget_idle()

    def _ask_for_pod(self) -> None:
        pod_id = f"pod-{self._numbers}"
        self._numbers += 1
        self._pods[pod_id] = False
        self.at(self.now + self._pod_start, lambda: self._begin(pod_id))

    def _begin(self, pod_id: str) -> None:
        if pod_id not in self._pods:
            return
        self._pods[pod_id] = True
        self._sync()
        engine: Engine[Ticket] = Engine(self._model)
        self.engines[pod_id] = engine
        self._engines.append(engine)
        self.ledger.join_pod(pod_id, self._model, self.now)
        self._start_all()

    def _give_up_pod(self) -> None:
        """Pods that are not ready go first, then the youngest: as a ReplicaSet chooses."""
        starting = [pod_id for pod_id, ready in self._pods.items() if not ready]
        pod_id = (starting or list(self._pods))[-1]
        if self._pods.pop(pod_id):
            self._sync()
            self.ledger.leave_pod(pod_id)

    def _forget_idle(self) -> None:
        for pod_id in [pod_id for pod_id in self.engines if pod_id not in self._pods]:
            engine = self.engines[pod_id]
            if engine.ends == NEVER:
                self._retired_busy += engine.busy_seconds
                del self.engines[pod_id]
                self._engines.remove(engine)
