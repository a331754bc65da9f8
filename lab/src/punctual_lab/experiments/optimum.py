"""The most requests that any schedule could have had on time, knowing the future.

For one machine, no preemption, and deadlines in the order of arrival (equal budgets) this is
exact. Whatever set is on time can then be served in order of arrival, and among schedules of the
first j requests with k on time the one that ends first leaves most room, so

    f(j, k) = min( f(j - 1, k), max(f(j - 1, k - 1), r_j) + p_j  if that is <= d_j )

with r release, p service, d deadline. Preemption gains nothing here. States that end before r_j
are equal except for k, so only the largest k of them is kept, and a request costs O(requests that
fit into one budget). The recurrence is that of Lawler and Moore (1969) on counts; the case was
shown to be polynomial by Kise, Ibaraki and Mine (1978).

For m pods of S slots it is an upper bound: one machine that does all pods' work, each request
needing its share of a full batch (`ServiceModel.cost` / m).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from punctual_admission.service_time import ServiceModel
    from punctual_lab.simulate.world import Arrival

EPSILON = 1e-9


def most_on_time(jobs: Iterable[tuple[float, float, float]]) -> int:
    """Most of the (release, service, deadline) that end in time on one machine.

    Raises ValueError when a later release has an earlier deadline.
    """
    ends, dropped, last = [float("-inf")], 0, float("-inf")
    for release, service, deadline in sorted(jobs):
        if deadline < last - EPSILON:
            raise ValueError(
                f"deadlines must be in the order of arrival, got {deadline} after {last}"
            )
        last = deadline
        done = 0
        while done + 1 < len(ends) and ends[done + 1] <= release:
            done += 1
        if done:
            del ends[:done]
            dropped += done
        _add_one(ends, release, service, deadline + EPSILON)
    return dropped + len(ends) - 1


def _add_one(ends: list[float], release: float, service: float, deadline: float) -> None:
    """Extend the states (earliest end for each count) by one request."""
    longest = max(release, ends[-1]) + service
    if longest <= deadline:
        ends.append(longest)
    for count in range(len(ends) - 1 - (longest <= deadline), 0, -1):
        before = ends[count - 1]
        end = max(release, before) + service
        if end < ends[count] and end <= deadline:
            ends[count] = end


def bound_on_time(arrivals: Sequence[Arrival], model: ServiceModel, pods: int = 1) -> int:
    """Most of the arrivals on time with so many pods: exact for one pod with one slot."""
    jobs = []
    for a in arrivals:
        tokens = a.actual_tokens
        if model.alone(a.prompt_tokens, tokens) <= a.budget + EPSILON:
            jobs.append((a.at, model.cost(a.prompt_tokens, tokens) / pods, a.at + a.budget))
    return most_on_time(jobs)
