"""The closed vocabularies: how a request ends, and why one is refused.

The members' values are what code, metric labels, log fields and response bodies carry, so a word
means the same everywhere. Tests hold that every consumer maps every member.
"""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended; each request ends exactly once."""

    GOOD = "good"
    """Answered by its deadline."""
    LATE = "late"
    """Started, but its deadline passed: answered after it, or cut off at it."""
    REFUSED = "refused"
    """Turned away at arrival; cost no engine time."""
    EXPIRED = "expired"
    """Admitted, then dropped from the queue before it started."""
    FAILED = "failed"
    """The upstream broke."""
    CANCELLED = "cancelled"
    """The client left."""


class Reason(StrEnum):
    """Why a request was refused, or dropped from the queue."""

    QUEUE_FULL = "queue_full"
    """As many requests wait as the policy allows."""
    WORK_LIMIT = "work_limit"
    """As many GPU-seconds wait as the policy allows."""
    DEADLINE_UNREACHABLE = "deadline_unreachable"
    """The forecast ends after the deadline, or it would make an admitted request late."""
    POOL_HEADROOM_EXHAUSTED = "pool_headroom_exhausted"
    """In-flight work plus this request exceeds the pool's limit less its headroom."""
    POOL_EXHAUSTED = "pool_exhausted"
    """No pod can take work."""
    MEMORY_EXHAUSTED = "memory_exhausted"
    """No pod has key-value memory for prompt and answer."""
    TIER_SHARE_EXHAUSTED = "tier_share_exhausted"
    """What is left is reserved for other tiers or size classes."""
    SHORTER_FIRST = "shorter_first"
    """It fits, but would be given up at its turn for shorter ones (`displacement: Longest`)."""
    DRAINING = "draining"
    """This gateway is shutting down."""
    CLIENT_QUOTA_EXCEEDED = "client_quota_exceeded"
    """The client's own rate limit; nothing to do with overload."""
    DEADLINE_EXCEEDED = "deadline_exceeded"
    """Dropped from the queue: it could no longer finish by its deadline."""
    DISPLACED = "displaced"
    """Dropped from the queue so that more requests finish on time (`displacement: Longest`)."""
