"""The parts of one gateway, put together, and what it counts."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from typing import TYPE_CHECKING

from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.policy import Backend, DecisionLogs
from punctual_admission.ticket import Refusal, Request, Ticket
from punctual_gateway.connections import Connections
from punctual_gateway.decision_log import DecisionLog
from punctual_gateway.discovery import DnsDiscovery, StaticDiscovery
from punctual_gateway.metrics import KNOWN_DECLINES, OTHER, UNFINISHED, Metrics
from punctual_gateway.own_work import OwnWork
from punctual_gateway.peers import Peers
from punctual_gateway.pods import Pods, build_session
from punctual_gateway.policy_file import LoadedPolicy, PolicyFile
from punctual_gateway.retry_budget import RetryBudget
from punctual_gateway.scheduler import Scheduler
from punctual_gateway.signals import Signals
from punctual_gateway.tokens import load_counter
from punctual_gateway.upstream import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from multidict import CIMultiDictProxy

    from punctual_admission.policy import Policy
    from punctual_gateway.discovery import Discovery
    from punctual_gateway.settings import Settings

log = logging.getLogger(__name__)


class Gateway:
    """Everything behind the routes. Raises PolicyError or TokenizerError when built wrongly."""

    def __init__(self, settings: Settings, discovery: Discovery | None = None) -> None:
        self.settings = settings
        self.policy_file = PolicyFile(settings.policy, self._apply_policy)
        self.loaded = self.policy_file.load()
        self.counter = load_counter(settings.tokenizer)
        self.scheduler = Scheduler(self.loaded.policy)
        self.metrics = Metrics()
        self._export_tiers()
        self.own_work = OwnWork()
        self.retry_budget = RetryBudget()
        self.started_at = time.time()
        self.signals = Signals(self.scheduler, settings.load_window)
        self.served = False
        self.accepting = True
        """Readiness: False from SIGTERM on."""
        self.last_arrival = 0.0
        """When the latest request was decided on; monotonic seconds."""
        self.decision_log: DecisionLog | None = None
        self._discovery = discovery or build_discovery(settings, lambda: self.policy.backend)
        self._prefix = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []
        self.session = build_session()
        self.connections = Connections()
        self.peers = Peers(self.scheduler, self.session, self.scheduler.hub.name)
        self.pods = Pods(self.scheduler, self.session, settings, self.own_work, self.peers)

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.scheduler.ledger.policy

    @property
    def ready(self) -> bool:
        """Whether this process should get traffic. Without pods too: it can refuse.

        At the start only once the pods that are there have been asked, so that the first requests
        are not refused for lack of pods.
        """
        return self.accepting and self.serving

    @property
    def serving(self) -> bool:
        """Whether requests get an answer: as `ready`, and on until the end of the process."""
        self.served = self.served or self.pods.asked
        return self.served

    def start(self) -> None:
        """Begin to follow pods and policy."""
        self._follow_decision_log()
        self._tasks = [
            asyncio.create_task(self.pods.follow(self._discovery), name="discovery"),
            asyncio.create_task(
                self.policy_file.watch(self.settings.policy_interval), name="policy file"
            ),
        ]
        peers = build_peer_discovery(self.settings)
        if peers is not None:
            self._tasks.append(asyncio.create_task(self.peers.follow(peers), name="peers"))
        for task in self._tasks:
            task.add_done_callback(_report)

    async def close(self) -> None:
        """Stop following, close connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.peers.close()
        await self.pods.close()
        self.scheduler.close()
        self._close_decision_log()
        self.connections.close()
        await self.session.close()

    def next_name(self) -> str:
        """A new request id."""
        return f"{self._prefix}-{next(self._numbers):x}"

    def suspend(self, pod_id: str | None, problem: str) -> None:
        """Give a pod no new work until it has answered again."""
        monitor = self.pods.find(pod_id or "")
        if monitor is not None:
            monitor.suspend(problem)

    @property
    def offered_work(self) -> float:
        """GPU-seconds of all arrivals since the start."""
        return self.signals.total

    # --- counting ----------------------------------------------------------------------------

    def count_arrival(self, request: Request, headers: CIMultiDictProxy[str]) -> bool:
        """Offered work: each request once, whatever becomes of it. False: a retry, not counted."""
        self.last_arrival = self.scheduler.now
        return self.signals.arrive(request, headers) is not None

    def count_refusal(self, refused: Refusal, seconds: float, *, new: bool, tier: str = "") -> None:
        """One refusal, how long it took since the first byte, and whether its arrival counted."""
        if new:
            self.signals.reject(refused.reason)
        self.metrics.requests[Outcome.REFUSED, refused.reason] += 1
        self._count_tier(tier, Outcome.REFUSED)
        self.metrics.refusal.observe(seconds)

    def count_end(self, ticket: Ticket, *, new: bool) -> None:
        """One ticket that has ended, and whether its arrival counted as new demand."""
        metrics, outcome, now = self.metrics, ticket.outcome, self.scheduler.now
        if outcome is None:
            raise RuntimeError(f"ticket {ticket.request.id} must have ended")
        metrics.requests[outcome, ticket.reason] += 1
        self._count_tier(ticket.request.tier, outcome)
        self.signals.end(ticket)
        if new and outcome is Outcome.EXPIRED:
            self.signals.reject(ticket.reason or Reason.DEADLINE_EXCEEDED)
        if ticket.would_refuse is not None:
            metrics.would_refuse.add(ticket.would_refuse.value)
        if ticket.dispatches:
            metrics.dispatches.add(by=ticket.dispatches)
            metrics.queue_wait.observe(max(ticket.started - ticket.request.arrival, 0.0))
        if outcome in (Outcome.GOOD, Outcome.LATE):
            metrics.service.observe(now - ticket.started)
            if not ticket.scouts:
                self._count_promise(ticket, now)
        if ticket.scouts:
            metrics.scouts.add(outcome.value)
        if outcome in UNFINISHED:
            spent = self._spent(ticket)
            metrics.wasted.add(outcome.value, by=spent)
            metrics.saved.add(outcome.value, by=max(ticket.cost - spent, 0.0))

    def _count_promise(self, ticket: Ticket, now: float) -> None:
        kept = ticket.outcome is Outcome.GOOD
        self.metrics.promises.add("true" if kept else "false")
        predicted = ticket.prediction.spent + ticket.prediction.sojourn
        if predicted > 0:
            self.metrics.predicted_ratio.observe((now - ticket.request.arrival) / predicted)
        if ticket.length is not None:
            self.metrics.length_ratio.observe(ticket.generated / ticket.length.mean)

    def _count_tier(self, tier: str, outcome: Outcome) -> None:
        if self.policy.tiers:
            self.metrics.tiers.add(tier, outcome.value)

    def _export_tiers(self) -> None:
        if tiers := self.policy.tiers:
            names = ["", *(tier.name for tier in tiers)]
            self.metrics.tiers.export(
                (name, outcome.value) for name in names for outcome in Outcome
            )

    def _spent(self, ticket: Ticket) -> float:
        """GPU-seconds that went into a ticket's tokens: none before the first has come."""
        pods = self.scheduler.ledger.all_pods
        if not ticket.generated or not pods:
            return ticket.cost * min(ticket.generated / ticket.request.output_tokens, 1.0)
        pod = next((pod for pod in pods if pod.id == ticket.pod), pods[0])
        return pod.engine.cost(ticket.request.prompt_tokens, ticket.generated)

    def count_fault(self, fault: Fault) -> None:
        """A pod broke."""
        self.metrics.faults.add(fault.value)

    def count_declined(self, code: str) -> None:
        """A pod sent work back; its word is bounded to the ones we know."""
        self.metrics.declined.add(code if code in KNOWN_DECLINES else OTHER)

    def count_rejection(self, status: int) -> None:
        """A pod called a request wrong that was right here."""
        self.metrics.faults.add(f"rejected_{status}")

    def count_invalid(self, status: int) -> None:
        """A request was wrong."""
        self.metrics.invalid.add(str(status))

    # --- policy ------------------------------------------------------------------------------

    def _apply_policy(self, loaded: LoadedPolicy) -> None:
        self.loaded = loaded
        self.scheduler.ledger.apply_policy(loaded.policy)
        self._export_tiers()
        self.scheduler.pump()
        self._follow_decision_log()
        log.info("policy generation %d is in force", loaded.generation)

    # --- decision log ------------------------------------------------------------------------

    def _follow_decision_log(self) -> None:
        """Begin or end to write decisions, as command line and policy want it."""
        path = self.settings.decision_log
        wanted = path is not None or self.policy.decision_log is DecisionLogs.STDOUT
        if wanted and self.decision_log is None:
            to_file = None if path is None or str(path) == "-" else path
            self.decision_log = DecisionLog(to_file, self.settings.decision_log_bytes)
            self.scheduler.record(self.decision_log)
        elif not wanted:
            self._close_decision_log()

    def _close_decision_log(self) -> None:
        self.scheduler.stop_recording()
        if self.decision_log is not None:
            self.decision_log.close()
            self.decision_log = None


def build_discovery(settings: Settings, backend: Callable[[], Backend]) -> Discovery:
    """The discovery that the command line asks for; `backend` gives the policy's section."""
    if settings.backend_slices is not None:
        # only a gateway in a cluster needs the Kubernetes client
        from punctual_gateway.endpoint_slices import (  # noqa: PLC0415  # 0.1 s of imports
            EndpointSliceDiscovery,
        )

        return EndpointSliceDiscovery(settings.backend_slices, backend)
    if settings.backend_dns is not None:
        return DnsDiscovery(settings.backend_dns, settings.dns_interval)
    return StaticDiscovery(settings.backends)


def build_peer_discovery(settings: Settings) -> Discovery | None:
    """Where other gateways are looked for; None: nowhere."""
    if settings.peer_slices is None or settings.backend_slices is None:
        return StaticDiscovery(settings.peers) if settings.peers else None
    from punctual_gateway.endpoint_slices import (  # noqa: PLC0415  # 0.1 s of imports
        EndpointSliceDiscovery,
    )

    service, _, port = settings.peer_slices.rpartition(":")
    own = Backend(service=service, port=int(port))
    return EndpointSliceDiscovery(settings.backend_slices, lambda: own)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s ended: %r", task.get_name(), error, exc_info=error)
