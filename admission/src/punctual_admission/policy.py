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

API_VERSION = "punctual.dev/v1alpha1"
KIND = "AdmissionPolicy"
OPERATOR_SECTIONS = frozenset({"gateway", "autoscaling"})
"""Sections of the spec that only the operator reads."""

DAY_MILLISECONDS = 86_400_000
NAME_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


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
class SizeClass:
    """Requests of a length, with a share of engine time that others may not take."""

    name: str = required_text(63, "Name of the class.", NAME_PATTERN)
    minimum_tokens: int = integer(
        1,
        1,
        1_000_000,
        "Least `max_tokens` of the class; a request belongs to the class with the largest minimum "
        "that it reaches.",
    )
    reserved_percent: int = integer(
        0, 0, 30, "Share of engine time kept for the class while it asks; lent out otherwise."
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


@dataclass(frozen=True, slots=True)
class Refusals:
    """How a refusal looks."""

    overload_status: int = integer(
        503, 429, 503, "HTTP status of a refusal because of overload: 429 or 503."
    )
    RULES: ClassVar = (
        (
            "self.overloadStatus == 429 || self.overloadStatus == 503",
            "`overloadStatus` must be 429 or 503",
        ),
    )


@dataclass(frozen=True, slots=True)
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
    pool: PoolLimit = section(PoolLimit, "A limit on all work in flight.")
    estimate: Estimate = section(Estimate, "How service times are predicted.")
    requests: Requests = section(Requests, "Bounds on what a request may ask for.")
    refusals: Refusals = section(Refusals, "How a refusal looks.")

    @property
    def expires(self) -> bool:
        """Whether a request that cannot finish in time is dropped from the queue."""
        if self.mode is Mode.UNLIMITED or self.mode is Mode.BOUNDED:
            return False
        return self.enforcement is Enforcement.ENFORCE

    @property
    def learns_lengths(self) -> bool:
        """Whether lengths are learned."""
        return self.estimate.output_length is Lengths.LEARNED

    @property
    def length_certainty(self) -> float:
        """Probability with which a learned length must fit."""
        return self.estimate.length_certainty_percent / 100

    @property
    def queue_work_limit(self) -> float | None:
        """Most GPU-seconds that may wait."""
        limit = self.queue.maximum_work_milliseconds
        return None if limit is None else limit / 1000

    @property
    def pool_work_limit(self) -> float | None:
        """Most GPU-seconds in flight, headroom already taken off."""
        limit = self.pool.maximum_work_milliseconds
        return None if limit is None else limit / 1000 * (1 - self.pool.headroom_percent / 100)

    def budget(self, asked_seconds: float | None) -> float:
        """The deadline budget in seconds: as asked for, or the default; at most the maximum."""
        wanted = (
            self.deadline.default_milliseconds / 1000 if asked_seconds is None else asked_seconds
        )
        return min(wanted, self.deadline.maximum_milliseconds / 1000)


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
    steps = policy.backend.step_microseconds
    if list(steps) != sorted(steps):
        problems.append(f"spec.backend.stepMicroseconds must not decrease, got {list(steps)}")
    return problems
