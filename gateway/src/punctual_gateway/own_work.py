"""Which requests on a pod are ours, so that a pod's report is not counted twice.

A report is a little older than the ledger: a request that has just ended here is still in it.
Identifiers are therefore remembered for `MEMORY` seconds after their end.
"""

from __future__ import annotations

from collections import Counter, deque

MEMORY = 5.0


class OwnWork:
    """The identifiers under which work was sent to pods."""

    def __init__(self) -> None:
        self._sent: Counter[str] = Counter()
        self._ended: deque[tuple[float, str, str]] = deque()

    def sent(self, request_id: str) -> None:
        """A request goes to a pod."""
        self._sent[request_id] += 1

    def ended(self, request_id: str, pod_id: str, now: float) -> None:
        """It is no longer on that pod, or will soon not be."""
        self._ended.append((now, request_id, pod_id))
        while self._ended and self._ended[0][0] < now - MEMORY:
            self._forget(self._ended.popleft()[1])

    def recent(self, pod_id: str, since: float) -> int:
        """How many have ended on a pod since then."""
        return sum(when >= since and pod == pod_id for when, _, pod in self._ended)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._sent

    def _forget(self, request_id: str) -> None:
        self._sent[request_id] -= 1
        if not self._sent[request_id]:
            del self._sent[request_id]
