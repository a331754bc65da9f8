"""The pods that the ledger knows, and what runs on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from punctual_admission.policy import Speed
from punctual_admission.pool import Pod, work_left
from punctual_admission.service_time import SpeedRatio
from punctual_admission.ticket import RUNNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from punctual_admission.policy import Policy
    from punctual_admission.service_time import ServiceModel
    from punctual_admission.ticket import Ticket


class KnownPods:
    """Pods come, are suspended while their state is unknown, and go when nobody runs there."""

    policy: Policy
    pods: Sequence[Pod]
    """Pods that can take work."""
    _pods: dict[str, Pod]

    if TYPE_CHECKING:

        def _changed(self) -> None: ...

    @property
    def all_pods(self) -> Sequence[Pod]:
        """Every known pod."""
        return list(self._pods.values())

    @property
    def running_work(self) -> float:
        """GPU-seconds still to be done for running requests."""
        return sum([work_left(pod) for pod in self.pods], 0.0)

    @property
    def running(self) -> int:
        """How many of our requests run."""
        return sum([len(pod.residents) for pod in self._pods.values()])

    def join_pod(self, pod_id: str, model: ServiceModel, now: float, ratio: float = 1.0) -> Pod:
        """A pod came; its probe measured `ratio`. A known pod keeps its residents."""
        known = self._pods.get(pod_id)
        if known is None:
            tracking = self.policy.estimate.speed is Speed.TRACKING
            speed = SpeedRatio(ratio, tracking=tracking)
            known = self._pods[pod_id] = Pod(pod_id, model, speed, step_started=now)
        else:
            known.replace_model(model)
        known.available, known.gone = True, False
        self._pods_changed()
        return known

    def suspend_pod(self, pod_id: str) -> None:
        """The pod's state is unknown: no new work goes there, what runs there goes on."""
        pod = self._pods.get(pod_id)
        if pod is not None and pod.available:
            pod.available = False
            self._pods_changed()

    def leave_pod(self, pod_id: str) -> Sequence[Ticket]:
        """The pod is gone: returns its running tickets, for the driver to move or end."""
        pod = self._pods.get(pod_id)
        if pod is None:
            return ()
        pod.available, pod.gone = False, True
        if not pod.residents:
            del self._pods[pod_id]
        self._pods_changed()
        return list(pod.residents.values())

    def observe_memory(self, pod_id: str, tokens: int | None) -> None:
        """How many tokens of key-value memory a pod has; None: it does not tell."""
        pod = self._pods.get(pod_id)
        if pod is not None:
            pod.memory_tokens = tokens

    def _pod_of(self, ticket: Ticket) -> Pod:
        if ticket.state is not RUNNING or ticket.pod is None:
            raise RuntimeError(f"ticket {ticket.request.id} must run, it is {ticket.state}")
        return self._pods[ticket.pod]

    def _pods_changed(self) -> None:
        self.pods = [pod for pod in self._pods.values() if pod.available]
        self._changed()
