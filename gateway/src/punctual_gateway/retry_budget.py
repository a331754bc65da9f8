"""How often work may be sent a second time: one retry for ten dispatches, a few at the start.

Without a budget a pool that breaks gets its load multiplied at the worst moment.
"""

from __future__ import annotations

SHARE = 0.1
RESERVE = 10.0
AT_START = 3.0


class RetryBudget:
    """A bucket that dispatches fill and retries empty."""

    def __init__(self) -> None:
        self.tokens = AT_START

    def dispatched(self) -> None:
        """One request was sent for the first time."""
        self.tokens = min(self.tokens + SHARE, RESERVE)

    def try_retry(self) -> bool:
        """Take one retry out of the budget, if there is one."""
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True
