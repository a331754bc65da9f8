"""The policy: what an `AdmissionPolicy` object asks for, as one frozen value.

Field names are those of the object in snake_case. Durations are integers of milliseconds
(microseconds for one engine step), as Kubernetes' API conventions want them; the properties below
give seconds. Sections that configure the deployment rather than the decision belong to the
operator and are ignored here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import ClassVar

from punctual_admission.fields import (
    PolicyError,
    build,
    choice,
    integer,
    integers,
    optional_integer,
    required_text,
    section,
    sections,
    text,
)
from punctual_admission.limits import (
    DAY_MILLISECONDS,
    HEADER_PATTERN,
    MOST_RESERVED,
    NAME_PATTERN,
    Gate,
    Memory,
    Quota,
    SizeClass,
    Tier,
)

API_VERSION = "punctual.dev/v1alpha1"
KIND = "AdmissionPolicy"
OPERATOR_SECTIONS = frozenset({"gateway", "autoscaling"})
"""Sections of the spec that only the operator reads."""


class Mode(StrEnum):
    """Which requests may join the queue."""

    UNLIMITED = "Unlimited"
    """Everything joins."""
    BOUNDED = "Bounded"
    """At most `queue.maximumRequests` wait."""
    DEADLINE = "Deadline"
    """Bounded, and whoever reaches the front too late is dropped unstarted."""
    PREDICTIVE = "Predictive"
    """Who cannot finish by its deadline, or would make an admitted request late, is refused."""


class Enforcement(StrEnum):
    """Whether a refusal is carried out."""

    ENFORCE = "Enforce"
    OBSERVE = "Observe"
    """Decide and count what would be refused, refuse nothing."""


class Objective(StrEnum):
    """What has to happen by the deadline."""

    COMPLETION = "Completion"
    FIRST_TOKEN = "FirstToken"  # noqa: S105  # a word, not a secret


class Order(StrEnum):
    """Who is next in the queue."""

    EARLIEST_DEADLINE_FIRST = "EarliestDeadlineFirst"
    """The earliest deadline; equal deadlines in order of arrival."""
    FIRST_IN_FIRST_OUT = "FirstInFirstOut"


class Displacement(StrEnum):
    """Whether a queued request may be given up so that more are on time."""

    NEVER = "Never"
    """An admission is a promise."""
    LONGEST = "Longest"
    """Give up the queued request with the longest service (Moore and Hodgson)."""


class Speed(StrEnum):
    """Whether the service model follows the measured speed."""

    TRACKING = "Tracking"
    FIXED = "Fixed"


class Lengths(StrEnum):
    """What an answer's length is estimated from."""

    MAXIMUM = "Maximum"
    """Every answer counts as its `max_tokens`."""
    LEARNED = "Learned"
    """What completed requests of the same group with similar prompts made of theirs."""


class Overdue(StrEnum):
    """What happens to running work whose deadline has passed."""

    CANCEL = "Cancel"
    FINISH = "Finish"


class CounterOffers(StrEnum):
    """Whether a refusal says what would have been promised instead."""

    NEVER = "Never"
    ALWAYS = "Always"


@dataclass(frozen=True, slots=True)
class Backend:
    """The pool of model pods, and what to assume of pods that do not describe themselves."""

    service: str = text(
        "", 63, "Name of the headless Service in front of the model pods.", rf"|{NAME_PATTERN}"
    )
    port: int = integer(8000, 1, 65535, "Port of the model pods.")
    slots: int = integer(
        8, 1, 4096, "Requests a pod runs at once, for pods without `/v1/capacity`."
    )
    step_microseconds: tuple[int, ...] = integers(
        64,
        1,
        60_000_000,
        "Decode step time with 1, 2, ... running requests, for pods without `/v1/capacity`; "
        "the last value counts for all larger batches.",
    )
    prefill_base_microseconds: int = integer(
        5000, 0, 60_000_000, "Constant part of a prefill, for pods without `/v1/capacity`."
    )
    prefill_token_microseconds: int = integer(
        100, 0, 60_000_000, "Prefill time per prompt token, for pods without `/v1/capacity`."
    )


@dataclass(frozen=True, slots=True)
class Deadline:
    """How long an answer may take, counted from the first byte of the request."""

    default_milliseconds: int = integer(
        30_000, 1, DAY_MILLISECONDS, "Deadline of a request that names none."
    )
    maximum_milliseconds: int = integer(
        300_000, 1, DAY_MILLISECONDS, "Longer deadlines are clamped to this one."
    )
    RULES: ClassVar = (
        (
            "self.defaultMilliseconds <= self.maximumMilliseconds",
            "`defaultMilliseconds` must be less than or equal to `maximumMilliseconds`",
        ),
    )


@dataclass(frozen=True, slots=True)
class Queue:
    """The waiting requests."""

    order: Order = choice(Order.EARLIEST_DEADLINE_FIRST, "Who is next.")
    maximum_requests: int = integer(
        8, 0, 100_000, "How many may wait in the modes Bounded and Deadline."
    )
    maximum_work_milliseconds: int | None = optional_integer(
        1, DAY_MILLISECONDS, "How much work may wait, in GPU-milliseconds; absent: no limit."
    )
    displacement: Displacement = choice(
        Displacement.NEVER, "Whether a queued request may be given up for a shorter one."
    )


@dataclass(frozen=True, slots=True)
class PoolLimit:
    """A limit on all work in flight, queued and running."""

    maximum_work_milliseconds: int | None = optional_integer(
        1, DAY_MILLISECONDS, "In-flight work allowed, in GPU-milliseconds; absent: no limit."
    )
    headroom_percent: int = integer(10, 0, 90, "Share of that limit which admission leaves free.")


@dataclass(frozen=True, slots=True)
class Estimate:
    """How service times are predicted."""

    speed: Speed = choice(Speed.TRACKING, "Whether predictions follow the measured speed.")
    confidence_percent: int = integer(
        99, 50, 99, "Share of the promises that the safety margin is to keep."
    )
    output_length: Lengths = choice(Lengths.MAXIMUM, "What an answer's length is estimated from.")
    length_certainty_percent: int = integer(
        99,
        50,
        99,
        "Probability with which wait and own answer together must fit into the deadline, where "
        "lengths are learned.",
    )


@dataclass(frozen=True, slots=True)
class Requests:
    """Bounds on what a request may ask for."""

    default_max_tokens: int = integer(
        16, 1, 1_000_000, "`max_tokens` of a request that names none."
    )
    maximum_body_bytes: int = integer(
        1_048_576, 1024, 67_108_864, "Larger request bodies are refused with status 413."
    )


class DecisionLogs(StrEnum):
    """Where every decision is written down."""

    OFF = "Off"
    STDOUT = "Stdout"
    """The gateway's standard output, one line of JSON a decision."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """How a refusal looks."""

    overload_status: int = integer(
        503, 429, 503, "HTTP status of a refusal because of overload: 429 or 503."
    )
    counter_offer: CounterOffers = choice(
        CounterOffers.NEVER,
        "Whether a refusal says which shorter answer and which later deadline would be promised, "
        "and clients may have the shorter one at once (`X-Accept-Shorter`).",
    )
    RULES: ClassVar = (
        (
            "self.overloadStatus == 429 || self.overloadStatus == 503",
            "`overloadStatus` must be 429 or 503",
        ),
    )


@dataclass(frozen=True)  # without slots, for what follows from the fields is kept once asked for
class Policy:
    """The whole decision part of `AdmissionPolicy.spec`."""

    model: str = required_text(253, "Name of the model that the pods serve.", r"[\x21-\x7e]+")
    backend: Backend = section(Backend, "The pool of model pods.")
    mode: Mode = choice(Mode.PREDICTIVE, "Which requests may join the queue.")
    enforcement: Enforcement = choice(
        Enforcement.ENFORCE, "Whether refusals are carried out or only counted."
    )
    objective: Objective = choice(Objective.COMPLETION, "What has to happen by the deadline.")
    overdue: Overdue = choice(
        Overdue.CANCEL, "What happens to running work whose deadline has passed."
    )
    deadline: Deadline = section(Deadline, "How long an answer may take.")
    queue: Queue = section(Queue, "The waiting requests.")
    size_classes: tuple[SizeClass, ...] = sections(
        SizeClass, "name", 3, "Reserved shares of engine time by length."
    )
    tier_header: str = text(
        "X-Punctual-Tier", 127, "Header whose value names a request's tier.", HEADER_PATTERN
    )
    tiers: tuple[Tier, ...] = sections(
        Tier, "name", 8, "Kinds of callers, with deadlines and shares of their own."
    )
    quota: Quota = section(Quota, "What each client may ask for.")
    pool: PoolLimit = section(PoolLimit, "A limit on all work in flight.")
    memory: Memory = section(Memory, "Key-value memory of the pods.")
    estimate: Estimate = section(Estimate, "How service times are predicted.")
    requests: Requests = section(Requests, "Bounds on what a request may ask for.")
    refusals: Refusals = section(Refusals, "How a refusal looks.")
    decision_log: DecisionLogs = choice(
        DecisionLogs.OFF,
        "Whether every decision is written with all that flows into it, for `punctual-lab replay`.",
    )
    RULES: ClassVar = (
        (
            "(has(self.tiers) ? self.tiers.map(t, t.reservedPercent).sum() : 0) + "
            "(has(self.sizeClasses) ? self.sizeClasses.map(c, c.reservedPercent).sum() : 0) "
            f"<= {MOST_RESERVED}",
            f"`reservedPercent` of all tiers and size classes together must be at most "
            f"{MOST_RESERVED}",
        ),
    )

    @cached_property
    def expires(self) -> bool:
        """Whether a request that cannot finish in time is dropped from the queue."""
        if self.mode is Mode.UNLIMITED or self.mode is Mode.BOUNDED:
            return False
        return self.enforcement is Enforcement.ENFORCE

    @cached_property
    def observes(self) -> bool:
        """Whether refusals are only counted."""
        return self.enforcement is Enforcement.OBSERVE

    @cached_property
    def learns_lengths(self) -> bool:
        """Whether lengths are learned."""
        return self.estimate.output_length is Lengths.LEARNED

    @cached_property
    def cuts_late_answers(self) -> bool:
        """Whether an answer is stopped at its deadline, so that none takes longer."""
        if self.objective is Objective.FIRST_TOKEN or self.enforcement is Enforcement.OBSERVE:
            return False
        return self.overdue is Overdue.CANCEL

    @cached_property
    def length_certainty(self) -> float:
        """Probability with which a learned length must fit."""
        return self.estimate.length_certainty_percent / 100

    @cached_property
    def queue_work_limit(self) -> float | None:
        """Most GPU-seconds that may wait."""
        limit = self.queue.maximum_work_milliseconds
        return None if limit is None else limit / 1000

    @cached_property
    def pool_work_limit(self) -> float | None:
        """Most GPU-seconds in flight, headroom already taken off."""
        limit = self.pool.maximum_work_milliseconds
        return None if limit is None else limit / 1000 * (1 - self.pool.headroom_percent / 100)

    @cached_property
    def divides(self) -> bool:
        """Whether tiers or size classes have shares."""
        return bool(self.size_classes or self.tiers)

    @cached_property
    def gates_memory(self) -> bool:
        """Whether requests without memory are refused."""
        return self.memory.gate is Gate.ENABLED

    @cached_property
    def offers(self) -> bool:
        """Whether refusals say what would have been promised."""
        return self.refusals.counter_offer is CounterOffers.ALWAYS

    @cached_property
    def completes(self) -> bool:
        """Whether the deadline is about the whole answer, not its first token."""
        return self.objective is Objective.COMPLETION

    @cached_property
    def displaces(self) -> bool:
        """Whether requests are given up for shorter ones."""
        return self.queue.displacement is Displacement.LONGEST and self.mode is Mode.PREDICTIVE

    @cached_property
    def earliest_first(self) -> bool:
        """Whether the earliest deadline is next."""
        return self.queue.order is Order.EARLIEST_DEADLINE_FIRST

    def tier(self, name: str) -> Tier | None:
        """The tier of that name."""
        return next((tier for tier in self.tiers if tier.name == name), None)

    def tier_of(self, value: str) -> str:
        """The name of the first tier that a header's value means; empty: of none."""
        return next((tier.name for tier in self.tiers if tier.means(value)), "")

    def budget(self, asked_seconds: float | None, tier: str = "") -> float:
        """The deadline budget in seconds: as asked for, or the default of the tier or of all; at
        most the maximum and what the tier may take.
        """
        default, most = self.deadline.default_milliseconds, self.deadline.maximum_milliseconds
        own = self.tier(tier) if tier else None
        if own is not None:
            default = own.default_deadline_milliseconds or default
            most = min(own.budget_milliseconds or most, most)
        return min(default / 1000 if asked_seconds is None else asked_seconds, most / 1000)


def policy_from_spec(spec: object) -> Policy:
    """Build a policy from the `spec` of an AdmissionPolicy; raises PolicyError with every fault."""
    policy = build(Policy, spec, "spec", OPERATOR_SECTIONS)
    problems = _across_fields(policy)
    if problems:
        raise PolicyError(problems)
    return policy


def policy_from_object(given: object) -> Policy:
    """Build a policy from a whole AdmissionPolicy object; raises PolicyError with every fault."""
    if not isinstance(given, Mapping):
        raise PolicyError([f"the policy must be an object, got {type(given).__name__}"])
    problems = [
        f"{name} must be '{wanted}', got {given.get(name)!r}"
        for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND))
        if given.get(name) != wanted
    ]
    if problems:
        raise PolicyError(problems)
    return policy_from_spec(given.get("spec"))


def _across_fields(policy: Policy) -> list[str]:
    problems = []
    deadline = policy.deadline
    if deadline.default_milliseconds > deadline.maximum_milliseconds:
        problems.append(
            "spec.deadline.defaultMilliseconds must be less than or equal to "
            f"spec.deadline.maximumMilliseconds ({deadline.maximum_milliseconds}), "
            f"got {deadline.default_milliseconds}"
        )
    if policy.refusals.overload_status not in (429, 503):
        problems.append(
            "spec.refusals.overloadStatus must be 429 or 503, "
            f"got {policy.refusals.overload_status}"
        )
    reserved = sum(tier.reserved_percent for tier in policy.tiers)
    reserved += sum(size.reserved_percent for size in policy.size_classes)
    if reserved > MOST_RESERVED:
        problems.append(
            "spec.tiers and spec.sizeClasses must reserve at most "
            f"{MOST_RESERVED} percent together, got {reserved}"
        )
    steps = policy.backend.step_microseconds
    if list(steps) != sorted(steps):
        problems.append(f"spec.backend.stepMicroseconds must not decrease, got {list(steps)}")
    return problems
