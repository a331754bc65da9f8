"""Key-value memory: whoever runs has to fit into it, prompt and answer.

A token takes `2 * layers * key-value heads * head dimension * bytes per value` bytes for as long as
its request runs, so memory is counted in tokens. A request reserves

    R = prompt + max_tokens            or, with learned lengths, prompt + a quantile of the length

and is started only on a pod that has as much free. So what waits for memory is list scheduling of
areas, R tokens times the seconds of its service s in a full pod: as long as the next one finds no
room, less than the largest reservation is free on each pod, and the wait is at most

    W = sum of R * s over all in flight / (M - pods * largest R)

with M the memory of all pods (the divisor is taken as at least M / 2). Where that is longer than
the wait for a slot, it is memory that makes a request late. What is larger than every pod's memory
never fits.

Source: the bound of list scheduling with a resource, Garey and Graham 1975; taking the larger of
two waits, not their sum, is ours.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from punctual_admission.limits import Reservation
from punctual_admission.track import NEVER

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
        return NEVER
    own = sum([ticket.reserved for ticket in pod.residents.values()])
    return pod.memory_tokens - own - sum([foreign.reserved for foreign in pod.foreign])


def memory_wait(pods: Sequence[Pod], queue: Sequence[Ticket], own: int) -> float:
    """Seconds that a newcomer who reserves `own` tokens waits for memory; infinite: it never fits.

    None is waited for where a pod does not tell how much it has.
    """
    sizes = [pod.memory_tokens for pod in pods if pod.memory_tokens is not None]
    if len(sizes) < len(pods) or not sizes:
        return 0.0
    if own > max(sizes):
        return NEVER
    if not queue and any(pod.free_slots and free_memory(pod) >= own for pod in pods):
        return 0.0
    total = sum(sizes)
    largest = max([own, *(ticket.reserved for ticket in queue)])
    area = sum(map(_running_area, pods)) + _waiting_area(pods[0], queue)
    return area / max(total - len(pods) * largest, total / 2)


def _running_area(pod: Pod) -> float:
    """Token-seconds that the pod's residents still hold."""
    tokens = sum([ticket.reserved * ticket.remaining for ticket in pod.residents.values()])
    tokens += sum([foreign.reserved * foreign.remaining for foreign in pod.foreign])
    return tokens * pod.engine.step_seconds[-1]


def _waiting_area(pod: Pod, queue: Sequence[Ticket]) -> float:
    crowded = pod.engine.crowded
    return sum([t.reserved * crowded(t.request.prompt_tokens, t.expected_tokens) for t in queue])
