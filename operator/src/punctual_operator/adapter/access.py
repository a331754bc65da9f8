"""Whether a user may read a metric: the API server decides, and its answer is kept for a while."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from punctual_operator.adapter.identity import User
from punctual_operator.adapter.shapes import GROUP, VERSION

KEPT_SECONDS = 10.0
"""As long as an API server's own delegated authorizer keeps a decision."""
WIDE_SECONDS = 60.0
"""For a user who may read everything, such as the autoscaler's controller."""
LARGEST = 10_000

Review = Callable[[dict[str, Any]], Awaitable[bool]]


class Access:
    """Asks by SubjectAccessReview. `review` posts one and returns whether it is allowed."""

    def __init__(self, review: Review, clock: Callable[[], float] = time.monotonic) -> None:
        self._review = review
        self._clock = clock
        self._known: OrderedDict[tuple[User, str, str], tuple[bool, float]] = OrderedDict()

    async def allows(self, user: User, namespace: str, metric: str) -> bool:
        """Whether the user may read it. Raises what `review` raises.

        First everything in all namespaces is asked for: whoever may that costs one review a minute,
        however many policies there are.
        """
        if await self._ask(user, "", "*", WIDE_SECONDS):
            return True
        return await self._ask(user, namespace, metric, KEPT_SECONDS)

    async def _ask(self, user: User, namespace: str, metric: str, kept: float) -> bool:
        key, now = (user, namespace, metric), self._clock()
        known = self._known.get(key)
        if known is not None and now < known[1]:
            return known[0]
        allowed = await self._review(build_review(user, namespace, metric))
        self._known[key] = allowed, now + kept
        self._known.move_to_end(key)
        if len(self._known) > LARGEST:
            self._known.popitem(last=False)
        return allowed


def build_review(user: User, namespace: str, metric: str) -> dict[str, Any]:
    """The SubjectAccessReview of a read; the API server calls a read of a collection `list`."""
    spec: dict[str, Any] = {
        "user": user.name,
        "groups": list(user.groups),
        "extra": {name: list(values) for name, values in user.extra},
        "resourceAttributes": {
            "namespace": namespace,
            "verb": "list",
            "group": GROUP,
            "version": VERSION,
            "resource": metric,
        },
    }
    if user.uid:
        spec["uid"] = user.uid
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
