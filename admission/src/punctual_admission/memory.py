"""Key-value memory: whoever runs has to fit into it, prompt and answer.

A token takes `2 * layers * key-value heads * head dimension * bytes per value` bytes for as long as
its request runs, so memory is counted in tokens. A request reserves

    R = prompt + max_tokens            or, with learned lengths, prompt + a quantile of the length

and of all requests in flight at most as many are resident at a time as there are slots. A newcomer
fits when the largest reservations, its own included, one for each slot, fit into the memory of all
pods together, and its own into one pod. Then no order of starts runs out of memory, except where
free memory lies scattered over pods: whoever is next then waits until one pod has enough.
"""

from __future__ import annotations

from heapq import nlargest
from math import ceil
from typing import TYPE_CHECKING

from punctual_admission.limits import Reservation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from punctual_admission.limits import Memory
    from punctual_admission.output_length import OutputLength
    from punctual_admission.pool import Pod
    from punctual_admission.ticket import Request, Ticket


def reservation(memory: Memory, request: Request, length: OutputLength | None) -> int:
    """Tokens of memory that the request is taken to need."""
    output: float = request.output_tokens
    if length is not None and memory.reservation is Reservation.LEARNED:
        place = ceil(memory.quantile_percent / 100 * len(length.cases)) - 1
        output = length.cases[place]
    return request.prompt_tokens + ceil(output)


def free_memory(pod: Pod) -> float:
    """Tokens that nobody on the pod has reserved; infinite where it is not known."""
    if pod.memory_tokens is None:
        return float("inf")
    own = sum([ticket.reserved for ticket in pod.residents.values()])
    return pod.memory_tokens - own - sum([foreign.reserved for foreign in pod.foreign])


def lacks_memory(pods: Sequence[Pod], queue: Sequence[Ticket], own: int) -> bool:
    """Whether a newcomer that reserves `own` tokens does not fit beside all that was admitted."""
    sizes = [pod.memory_tokens for pod in pods if pod.memory_tokens is not None]
    if len(sizes) < len(pods) or not sizes:
        return False
    if own > max(sizes):
        return True
    taken = [own, *(ticket.reserved for ticket in queue)]
    for pod in pods:
        taken += [ticket.reserved for ticket in pod.residents.values()]
        taken += [foreign.reserved for foreign in pod.foreign]
    total = sum(sizes)
    return sum(taken) > total and sum(nlargest(sum([p.slots for p in pods]), taken)) > total
