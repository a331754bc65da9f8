"""What is known of the pods: their engines, who runs on them, and in which phase they are."""

from __future__ import annotations

from dataclasses import dataclass, field

from punctual_admission.service_time import ServiceModel, SpeedRatio
from punctual_admission.ticket import Ticket


@dataclass(frozen=True, slots=True)
class Foreign:
    """A request on the pod that another gateway sent: tokens left, prompt still to be prefilled."""

    remaining: int
    unstarted_prompt_tokens: int | None = None
    reserved: int = 0
    """Tokens of key-value memory it may come to need, where the pod says so."""


@dataclass(slots=True, eq=False)
class Pod:
    """One model pod. Only the ledger changes it."""

    id: str
    model: ServiceModel
    speed: SpeedRatio = field(default_factory=SpeedRatio)
    available: bool = True
    """Ready, and its state is not older than it may be."""
    gone: bool = False
    """It has left; kept only until its last resident has ended."""
    memory_tokens: int | None = None
    """Tokens of key-value memory; None: not known, and then not counted."""
    residents: dict[int, Ticket] = field(default_factory=dict)
    """Our running tickets by sequence."""
    reported: tuple[Foreign, ...] = ()
    """What it says that it runs for others than us and our peers."""
    foreign: tuple[Foreign, ...] = ()
    """All that it runs for others."""
    step_started: float = 0.0
    """When the current decode step began, as far as tokens have told."""
    busy_until: float = 0.0
    """When the last prefill that was sent here ends, by forecast."""
    step_due: float = 0.0
    """End of a step under way that a newcomer waits for, until its tokens have come."""
    paused_until: float = 0.0
    """No new work before this: the pod refused some that was sent."""
    _scaled: tuple[float, ServiceModel] | None = None

    @property
    def slots(self) -> int:
        """Requests that run at once."""
        return len(self.model.step_seconds)

    @property
    def free_slots(self) -> int:
        """Slots that nobody holds."""
        free = len(self.model.step_seconds) - len(self.residents) - len(self.foreign)
        return 0 if free < 0 else free

    @property
    def engine(self) -> ServiceModel:
        """The service model at the tracked speed."""
        ratio = self.speed.value
        scaled = self._scaled
        if scaled is None or scaled[0] != ratio:
            scaled = self._scaled = (ratio, self.model.scaled(ratio))
        return scaled[1]

    def replace_model(self, model: ServiceModel) -> None:
        """Take a newly published service model."""
        self.model = model
        self._scaled = None

    def boundary(self, now: float) -> float:
        """When a request sent at `now` can be taken up: the end of the step under way."""
        if self.busy_until > now:
            return self.busy_until
        if not self.residents and not self.foreign:
            return now
        step = self.engine.step(len(self.residents) + len(self.foreign))
        into = now - self.step_started
        if into >= step or into <= 0:
            # The step is overdue, so it may end at any moment; or it begins at this very one.
            return now
        return max(now, self.step_started + step)


def work_left(pod: Pod) -> float:
    """GPU-seconds of the pod's running requests, own and foreign."""
    engine, work, steps = pod.engine, 0.0, 0.0
    base, per_token = engine.prefill_base, engine.prefill_per_token
    for ticket in pod.residents.values():
        left = ticket.remaining
        if not ticket.generated:
            work += base + per_token * ticket.request.prompt_tokens
            left -= 1
        steps += left
    work += engine.steps_cost(steps)
    for foreign in pod.foreign:
        work += _foreign_work(engine, foreign)
    return work


def _foreign_work(engine: ServiceModel, foreign: Foreign) -> float:
    if foreign.unstarted_prompt_tokens is not None:
        return engine.cost(foreign.unstarted_prompt_tokens, foreign.remaining)
    return engine.steps_cost(foreign.remaining)
