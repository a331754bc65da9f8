"""Sections of the policy about who may take how much: size classes, tiers, quotas, memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from punctual_admission.fields import choice, integer, optional_integer, required_text, text, texts

DAY_MILLISECONDS = 86_400_000
NAME_PATTERN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
HEADER_PATTERN = r"|[A-Za-z0-9][-A-Za-z0-9]*"
MOST_RESERVED = 90
"""Percent of engine time that tiers and size classes may reserve together."""
UNLIMITED = float("inf")
"""The rate of a quota that sets no limit."""


class Gate(StrEnum):
    """Whether a gate is in force."""

    DISABLED = "Disabled"
    ENABLED = "Enabled"


class Reservation(StrEnum):
    """How much memory an answer is taken to need."""

    MAXIMUM = "Maximum"
    """Prompt and `max_tokens`: the worst case."""
    LEARNED = "Learned"
    """Prompt and a quantile of the learned length."""


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
class Tier:
    """Requests of one kind of caller: their deadlines, and a share that others may not take."""

    name: str = required_text(63, "Name of the tier.", NAME_PATTERN)
    values: tuple[str, ...] = texts(
        16, 256, "Values of the header `tierHeader` that mean this tier; none: its name."
    )
    default_deadline_milliseconds: int | None = optional_integer(
        1, DAY_MILLISECONDS, "Deadline of a request of the tier that names none."
    )
    budget_milliseconds: int | None = optional_integer(
        1, DAY_MILLISECONDS, "Most time an answer of the tier may take, whatever it asks for."
    )
    reserved_percent: int = integer(
        0,
        0,
        MOST_RESERVED,
        "Share of engine time kept for the tier while it asks; lent out otherwise.",
    )

    def means(self, value: str) -> bool:
        """Whether the header's value names this tier."""
        return value in self.values if self.values else value == self.name


@dataclass(frozen=True, slots=True)
class Quota:
    """What each client may ask of one gateway; a limit that is absent is none."""

    client_header: str = text(
        "Authorization",
        127,
        "Header that tells clients apart; empty, or absent in a request: the peer's address.",
        HEADER_PATTERN,
    )
    requests_per_minute: int | None = optional_integer(1, 100_000_000, "Admitted requests.")
    tokens_per_minute: int | None = optional_integer(
        1, 2_000_000_000, "Prompt tokens and `max_tokens` of admitted requests."
    )
    gpu_milliseconds_per_minute: int | None = optional_integer(
        1, 2_000_000_000, "Predicted engine time of admitted requests; 60000 is one whole pod."
    )
    burst_seconds: int = integer(
        10, 1, 86_400, "So many seconds' worth may be used at once, by who has not used it."
    )
    maximum_clients: int = integer(
        10_000, 1, 1_000_000, "Clients remembered; who was not seen for longest is forgotten."
    )

    @property
    def limits(self) -> tuple[float, float, float]:
        """Requests, tokens and GPU-seconds a second; `UNLIMITED` where there is no limit."""
        return (
            _per_second(self.requests_per_minute),
            _per_second(self.tokens_per_minute),
            _per_second(self.gpu_milliseconds_per_minute) / 1000,
        )

    @property
    def active(self) -> bool:
        """Whether there is any limit."""
        return min(self.limits) != UNLIMITED


@dataclass(frozen=True, slots=True)
class Memory:
    """Key-value memory of the pods: prompt and answer of whoever runs have to fit into it."""

    gate: Gate = choice(Gate.DISABLED, "Whether requests without memory are refused.")
    bytes_per_token: int | None = optional_integer(
        1,
        1_000_000_000,
        "2 x layers x key-value heads x head dimension x bytes per value, for pods that do not "
        "tell how many tokens they hold.",
    )
    mebibytes: int | None = optional_integer(
        1, 100_000_000, "Key-value memory of a pod, for pods that do not tell."
    )
    reservation: Reservation = choice(
        Reservation.MAXIMUM, "How much memory an answer is taken to need."
    )
    quantile_percent: int = integer(
        99, 50, 100, "Quantile of the learned length that is reserved (`reservation: Learned`)."
    )

    @property
    def tokens(self) -> int | None:
        """Tokens that a pod holds which does not tell; None: not known."""
        if self.bytes_per_token is None or self.mebibytes is None:
            return None
        return self.mebibytes * 2**20 // self.bytes_per_token


def _per_second(per_minute: int | None) -> float:
    return UNLIMITED if per_minute is None else per_minute / 60
