"""The decision: may this request join, and if not, why not.

At arrival the forecast (see `forecast`) gives the wait W and the own service S of the newcomer,
in seconds. With the time spent since arrival A, the deadline budget D and the safety margin m
(see `margin`) the newcomer is admitted in mode Predictive if and only if

    A + m * (W + S) <= D    and no admitted request becomes late by it.

The other modes count instead: Unlimited admits all, Bounded and Deadline admit while fewer than N
wait. Limits on queued and in-flight GPU-seconds hold in every mode. All rules are checked first,
in the order of `RULES`, and only then is anything taken: a refusal changes nothing. A client's own
quota comes before the rules about load, so that a 429 always means the client and a 503 the pool.

Symbols: N `queue.maximumRequests`; waiting are those that no free slot can start at once, so a
burst of N + slots admits N + slots.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from punctual_admission.counter_offer import find_counter_offer
from punctual_admission.displacement import find_displaced
from punctual_admission.forecast import Lateness, Trial
from punctual_admission.outcomes import Reason
from punctual_admission.output_length import OutputLength
from punctual_admission.policy import Mode, Policy
from punctual_admission.regret import TURNED_AWAY
from punctual_admission.retry_after import retry_delay
from punctual_admission.ticket import CounterOffer, Prediction, Refusal, Request, Ticket
from punctual_admission.track import NEVER, Item
from punctual_admission.view import PoolView

JOINERS = 1.15
"""About how much slower a full pod's tokens come because of those who join (see `company`)."""


@dataclass(slots=True)  # not frozen: one is made for each decision
class Admission:
    """The request may join."""

    prediction: Prediction
    cost: float
    """GPU-seconds."""
    pod_id: str | None
    """The pod that starts it at once, if one has a free slot."""
    length: OutputLength | None = None
    """What was learned of its output."""
    displaced: Ticket | None = None
    """The waiting request to give up for it."""
    would_refuse: Reason | None = None
    """The reason it would have been refused for, under `enforcement: Observe`."""


@dataclass(slots=True)  # not frozen: one is made for each decision
class Case:
    """One request before the rules: the policy, the pool, and what the forecast says."""

    policy: Policy
    view: PoolView
    request: Request
    cost: float
    waits: bool
    """Whether no slot is free for it."""
    prediction: Prediction
    trial: Trial
    displaced: Ticket | None
    length: OutputLength | None = None
    held: float = 0.0
    """Seconds of wait that are kept free for other tiers and size classes."""
    quota_wait: float = 0.0
    """Seconds until the client's own quota allows it."""
    memory_wait: float = 0.0
    """Seconds that it waits for memory; infinite: it never fits."""


def decide(
    policy: Policy,
    view: PoolView,
    request: Request,
    now: float,
    length: OutputLength | None = None,
) -> Admission | Refusal:
    """Admit or refuse `request` at `now`, as one of `length` if given; changes nothing."""
    case = examine(policy, view, request, now, length)
    reason = _first_reason(case)
    observed = policy.observes and reason not in NEVER_OBSERVED
    if reason is None or observed:
        pod_id = None if case.waits else case.trial.pod_id
        displaced = case.displaced if reason is None else None
        return Admission(case.prediction, case.cost, pod_id, case.length, displaced, reason)
    to_next_end = _seconds_to_next_end(view, now)
    return Refusal(
        reason,
        case.prediction,
        retry_delay(reason, case.prediction, to_next_end, view.jitter(), case.quota_wait),
        _retry_may_help(case),
        _counter_offer(case, reason, now) if policy.offers else None,
    )


def _counter_offer(case: Case, reason: Reason, now: float) -> CounterOffer | None:
    policy, view = case.policy, case.view

    def fits(other: Request) -> bool:
        return _first_reason(examine(policy, view, other, now)) is None

    steps = view.pods[0].engine.step_seconds if view.pods else (1.0,)
    pace = steps[-1] * JOINERS if case.waits and len(steps) > 1 else steps[0]
    return find_counter_offer(policy, case.request, reason, case.prediction, pace, fits)


def _first_reason(case: Case) -> Reason | None:
    for rule in RULES_OF[case.policy.mode]:
        reason = rule(case)
        if reason is not None:
            return reason
    return None


def examine(
    policy: Policy,
    view: PoolView,
    request: Request,
    now: float,
    length: OutputLength | None = None,
) -> Case:
    """Work out everything that the rules look at; `length` counts instead of what was learned."""
    if length is None:
        length = view.length(request)
    newcomer = Item(request.prompt_tokens, request.output_tokens, request.deadline, length)
    if length is not None:
        newcomer.output_tokens, newcomer.variance = length.mean, length.variance
    pods, queue, margin = view.pods, view.queue, view.margin
    displaced, cost = None, 0.0
    if not pods:
        trial = Trial(fits=False)
    else:
        cost = pods[0].engine.cost(request.prompt_tokens, newcomer.output_tokens)
        test = Lateness(now, margin, policy.objective, policy.length_certainty)
        trial, displaced = _try(policy, view, request, newcomer, test)
    waits = bool(queue) or not [p for p in pods if p.free_slots and p.paused_until <= now]
    prediction = _prediction(policy, view, request, newcomer, margin, now)
    held = view.held(request, now) / len(pods) if policy.divides and pods else 0.0
    quota_wait = view.quota_wait(request, cost, now) if request.client else 0.0
    memory_wait = view.memory_wait(request, length) if policy.gates_memory else 0.0
    return Case(
        policy, view, request, cost, waits, prediction, trial, displaced, length, held,
        quota_wait, memory_wait,
    )  # fmt: skip


def _try(
    policy: Policy, view: PoolView, request: Request, newcomer: Item, test: Lateness
) -> tuple[Trial, Ticket | None]:
    queue, forecast = view.queue, view.forecast(test.now)
    place = place_in(queue, policy, request)
    if place == len(queue):
        trial = forecast.append(newcomer, test)
    else:
        trial = forecast.insert(place, newcomer, test)
    if trial.fits or not policy.displaces:
        return trial, None
    if place == len(queue) and trial.first_late is None:
        # At the tail only a walk of the whole queue tells who is the first to be late.
        trial = forecast.insert(place, newcomer, test)
    return find_displaced(forecast, queue, place, newcomer, test, view.pods[0].engine, trial)


def place_in(queue: Sequence[Ticket], policy: Policy, request: Request) -> int:
    """Where in the queue the request would stand."""
    if not queue or not policy.earliest_first:
        return len(queue)
    if queue[-1].request.deadline <= request.deadline:
        return len(queue)
    return bisect(queue, request.deadline, key=lambda ticket: ticket.request.deadline)


def _prediction(
    policy: Policy, view: PoolView, request: Request, newcomer: Item, margin: float, now: float
) -> Prediction:
    pods, arrival = len(view.pods), request.arrival
    wait = service = 0.0
    if pods:
        start = newcomer.start
        due = newcomer.end if policy.completes else newcomer.first_token
        # a forecast may be a moment old, and a start in it no longer to come
        wait, service = start - now if start > now else 0.0, due - start
    budget, backlog = request.deadline - arrival, view.queued_work + view.running_work
    return Prediction(
        wait, service, margin, budget, now - arrival, backlog, pods, len(view.queue),
        view.running,
    )  # fmt: skip


def draining(case: Case) -> Reason | None:
    """The process is shutting down."""
    return Reason.DRAINING if case.view.draining else None


def pool_exhausted(case: Case) -> Reason | None:
    """No pod can take work."""
    return None if case.view.pods else Reason.POOL_EXHAUSTED


def client_quota_exceeded(case: Case) -> Reason | None:
    """The client has had what it may have, whatever the load."""
    return Reason.CLIENT_QUOTA_EXCEEDED if case.quota_wait > 0 else None


def memory_exhausted(case: Case) -> Reason | None:
    """Prompt and answer never fit into the pods' key-value memory, or not in time."""
    if not case.memory_wait:
        return None
    more = case.memory_wait - case.prediction.wait
    if more == NEVER:
        return Reason.MEMORY_EXHAUSTED
    if case.policy.mode is not Mode.PREDICTIVE or more <= 0:
        return None
    late = case.prediction.excess + more * case.prediction.margin > 0
    return Reason.MEMORY_EXHAUSTED if late else None


def queue_full(case: Case) -> Reason | None:
    """As many wait as may wait; a request that starts at once does not wait."""
    full = len(case.view.queue) >= case.policy.queue.maximum_requests
    return Reason.QUEUE_FULL if case.waits and full else None


def work_limit(case: Case) -> Reason | None:
    """As many GPU-seconds wait as may wait."""
    limit = case.policy.queue_work_limit
    over = limit is not None and case.waits and case.view.queued_work + case.cost > limit
    return Reason.WORK_LIMIT if over else None


def pool_headroom_exhausted(case: Case) -> Reason | None:
    """All work in flight would exceed the pool's limit less its headroom."""
    limit = case.policy.pool_work_limit
    over = limit is not None and case.prediction.backlog + case.cost > limit
    return Reason.POOL_HEADROOM_EXHAUSTED if over else None


def deadline_unreachable(case: Case) -> Reason | None:
    """The promise would not hold, for this request or for an admitted one."""
    return None if case.trial.fits else Reason.DEADLINE_UNREACHABLE


def tier_share_exhausted(case: Case) -> Reason | None:
    """It would fit, but into room that is kept for other tiers or size classes."""
    if not case.held or not case.waits:
        return None
    over = case.prediction.excess + case.held * case.prediction.margin > 0
    return Reason.TIER_SHARE_EXHAUSTED if over else None


def shorter_first(case: Case) -> Reason | None:
    """It fits, but shorter ones will come that are worth more, so at its turn it would go."""
    if not case.waits or not case.policy.displaces:
        return None
    request, wait = case.request, case.prediction.wait
    now = request.arrival + case.prediction.spent
    lost = case.view.regret(request, case.cost, wait, now)
    return Reason.SHORTER_FIRST if lost > TURNED_AWAY else None


RULES: tuple[Callable[[Case], Reason | None], ...] = (
    draining,
    pool_exhausted,
    client_quota_exceeded,
    queue_full,
    work_limit,
    pool_headroom_exhausted,
    memory_exhausted,
    deadline_unreachable,
    tier_share_exhausted,
    shorter_first,
)
_COUNTING = frozenset({queue_full})
_PREDICTING = frozenset({deadline_unreachable, tier_share_exhausted, shorter_first})
RULES_OF = {
    mode: tuple(
        rule
        for rule in RULES
        if (rule not in _PREDICTING or mode is Mode.PREDICTIVE)
        and (rule not in _COUNTING or mode in (Mode.BOUNDED, Mode.DEADLINE))
    )
    for mode in Mode
}
"""Those of `RULES` that can apply in a mode."""
NEVER_OBSERVED = frozenset({Reason.DRAINING, Reason.POOL_EXHAUSTED})
"""Reasons that hold whatever `enforcement` says: there is nothing to run the request on."""


def _seconds_to_next_end(view: PoolView, now: float) -> float:
    next_end = view.forecast(now).next_end() if view.pods else now
    return next_end - now if next_end > now else 0.0


def _retry_may_help(case: Case) -> bool:
    """False when even an empty pool is too slow for this request's deadline."""
    request = case.request
    if not case.view.pods:
        return True
    if case.memory_wait == NEVER:
        return False
    tokens: float = 1
    if case.policy.completes:
        tokens = request.output_tokens if case.length is None else case.length.least
    margin, budget = case.prediction.margin, request.budget
    for pod in case.view.pods:
        if pod.engine.alone(request.prompt_tokens, tokens) * margin <= budget:
            return True
    return False
