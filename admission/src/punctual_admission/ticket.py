"""What a request asks for, and the ticket it holds from admission to its one end."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.output_length import OutputLength

if TYPE_CHECKING:
    from punctual_admission.track import Item


@dataclass(slots=True, unsafe_hash=True)  # not frozen: one is made for each decision
class Request:
    """What the decision needs to know of a request.

    `arrival` and `deadline` are monotonic seconds; `output_tokens` is how many tokens to expect
    at most; `group` names those whose answers have similar lengths (route, tier, tenant); `tier`
    is one of the policy's, and `client` whoever has a quota of its own.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    arrival: float
    deadline: float
    group: str = ""
    tier: str = ""
    client: str = ""

    @property
    def budget(self) -> float:
        """Seconds between arrival and deadline."""
        return self.deadline - self.arrival


@dataclass(slots=True)  # not frozen: one is made for each decision, and nobody changes it
class Prediction:
    """The numbers behind a decision, in seconds unless the name says otherwise."""

    wait: float
    """Predicted time in the queue."""
    service: float
    """Predicted own service, from start to the end of the objective."""
    margin: float
    """Factor on wait + service that the promise includes."""
    budget: float
    """What the deadline allows, from arrival."""
    spent: float
    """How much of the budget had gone when the decision was made."""
    backlog: float
    """GPU-seconds ahead: queued and running."""
    pods: int
    """Pods that can take work."""
    queued: int
    running: int

    @property
    def sojourn(self) -> float:
        """Predicted time from the decision to the end of the objective, without the margin."""
        return self.wait + self.service

    @property
    def excess(self) -> float:
        """How many seconds the promise would miss the deadline by; negative when it holds."""
        return self.spent + self.sojourn * self.margin - self.budget


@dataclass(frozen=True, slots=True)
class CounterOffer:
    """What would be admitted instead of a request that was refused, at the moment it was."""

    output_tokens: int | None
    """The largest `max_tokens` with the same deadline; None: no answer, however short."""
    budget: float | None
    """The earliest deadline of the same answer, seconds from arrival; None: none is known."""


@dataclass(slots=True)  # not frozen: one is made for each decision
class Refusal:
    """Why a request was turned away, with every number behind it."""

    reason: Reason
    prediction: Prediction
    retry_after: float
    """Seconds after which a retry has a chance, jittered."""
    retry_may_help: bool
    """False when no retry can meet this request's deadline."""
    offer: CounterOffer | None = None
    """What would be admitted instead (`refusals.counterOffer`)."""


class State(StrEnum):
    """Where a ticket is on its way."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


QUEUED, RUNNING, ENDED = State
"""For what is asked often: Python 3.11 looks up a member of an enumeration by a call."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One admitted request. Only the ledger changes it."""

    CACHES: ClassVar = frozenset({"item"})
    """Attributes that are no knowledge: a checkpoint leaves them out."""

    request: Request
    sequence: int
    prediction: Prediction
    cost: float
    """GPU-seconds, at the speed of admission."""
    length: OutputLength | None = None
    """What was learned of its output; None: it counts as the maximum."""
    would_refuse: Reason | None = None
    """What `enforcement: Observe` would have refused it for."""
    state: State = State.QUEUED
    pod: str | None = None
    started: float = 0.0
    prefill_end: float = 0.0
    """When the forecast expects the first token."""
    generated: int = 0
    expected_service: float = 0.0
    """Model seconds (ratio 1) for what the pod has done so far while this ran."""
    ratio: float = 1.0
    """Speed ratio of the pod when this started."""
    kept: bool = False
    """Its tier or size class has a reserved share, so it is not displaced."""
    reserved: int = 0
    """Tokens of key-value memory kept for it, where the policy gates memory."""
    overtaken: bool = False
    """A later admission went ahead, so the wait that was predicted no longer teaches."""
    first_token: float | None = None
    outcome: Outcome | None = None
    reason: Reason | None = None
    dispatches: int = 0
    crowded: bool = False
    """More than fit were on its pod before its first token, so its time teaches nothing."""
    peer: str = ""
    """The gateway that holds it, where that is another one: it is waited for, and not served."""
    order: tuple[float, float] = field(default=(0.0, 0))
    """Its place in the queue: ascending."""
    item: Item | None = None
    """How the forecast sees it; made by the first forecast that does."""

    @property
    def expected_tokens(self) -> float:
        """Output tokens to expect of the whole answer."""
        return self.request.output_tokens if self.length is None else self.length.mean

    @property
    def scouts(self) -> bool:
        """Whether it was let through without a promise (see `scout`)."""
        return self.length is not None and self.length.scouts

    @property
    def remaining(self) -> float:
        """Output tokens still to come; a request that outlives its estimate has one left."""
        if self.length is not None:
            return self.length.left(self.generated)[0] if self.generated else self.length.mean
        left = self.request.output_tokens - self.generated
        return 1 if left < 1 else left

    @property
    def uncertainty(self) -> float:
        """Variance of the output tokens still to come."""
        if self.length is None:
            return 0.0
        return self.length.left(self.generated)[1] if self.generated else self.length.variance
