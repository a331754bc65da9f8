"""The signals that an autoscaler reads, in `/metrics`, `/stats` and `/signals`.

The arithmetic is `punctual_admission.demand`; here is what needs the gateway: which arrivals are
retries of one that was counted, and what a typical newcomer would wait. Values are computed when
they are read, so nothing has to be completed for them to be right. Before one window has passed
since the start there are none: an absent value, never a zero.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson

from punctual_admission.decision import examine
from punctual_admission.demand import Demand, Reading
from punctual_admission.outcomes import Outcome, Reason
from punctual_admission.ticket import Request
from punctual_gateway.capacity import profile
from punctual_gateway.metrics import gauge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

    from punctual_admission.service_time import ServiceModel
    from punctual_admission.ticket import Ticket
    from punctual_gateway.gateway import Gateway
    from punctual_gateway.scheduler import Scheduler

RETRY_COUNT = "x-stainless-retry-count"
"""OpenAI's and Anthropic's clients number their retries here."""
REQUEST_NAMES = ("Idempotency-Key", "X-Request-Id")
"""Headers by which a client names one logical request, the same for all of its retries."""
REMEMBERED_SECONDS = 300.0
REMEMBERED_NAMES = 50_000


class Retries:
    """Tells whether a request was seen before, by what its client says.

    Names are kept as hashes, for five minutes, at most 50,000 of them. A client that never names
    its requests is counted each time: two alike bodies may be two requests.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[int, float] = OrderedDict()

    def is_retry(self, headers: Mapping[str, str], now: float) -> bool:
        """Whether this is a retry; remembers the request if it is not."""
        self._forget(now)
        count = headers.get(RETRY_COUNT, "")
        names = [hash((name, headers[name])) for name in REQUEST_NAMES if headers.get(name)]
        seen = any(name in self._seen for name in names)
        for name in names:
            self._seen.setdefault(name, now)
        return seen or (count.isascii() and count.isdigit() and int(count[:9]) > 0)

    def _forget(self, now: float) -> None:
        while self._seen:
            oldest = next(iter(self._seen.values()))
            if now - oldest <= REMEMBERED_SECONDS and len(self._seen) <= REMEMBERED_NAMES:
                return
            self._seen.popitem(last=False)


class Signals:
    """Demand at one gateway."""

    def __init__(self, scheduler: Scheduler, window_seconds: int) -> None:
        self.total = 0.0
        """GPU-seconds of all arrivals since the start."""
        short = max(min(window_seconds // 6, 10), 1)
        self._demand = Demand(scheduler.now, long_seconds=window_seconds, short_seconds=short)
        self._scheduler = scheduler
        self._retries = Retries()
        self._engine: ServiceModel | None = None

    @property
    def window_seconds(self) -> int:
        """Length of the long window."""
        return self._demand.long_seconds

    def arrive(self, request: Request, headers: Mapping[str, str]) -> float | None:
        """Count one arrival; returns its GPU-seconds, or None for the retry of one that counts."""
        now = self._scheduler.now
        if self._retries.is_retry(headers, now):
            return None
        length = self._scheduler.ledger.length(request)
        # the mean and not the maximum: the sum over many is what the pool has to carry
        tokens = request.output_tokens if length is None else length.mean
        cost = self._cost_model().cost(request.prompt_tokens, tokens)
        self.total += cost
        self._demand.arrive(now, cost, request.prompt_tokens, request.output_tokens)
        return cost

    def reject(self, reason: Reason) -> None:
        """A counted arrival was turned away; a client's own quota says nothing about the pool."""
        if reason is not Reason.CLIENT_QUOTA_EXCEEDED:
            self._demand.reject(self._scheduler.now)

    def end(self, ticket: Ticket) -> None:
        """Book the wait and the work of a ticket that has ended."""
        now = self._scheduler.now
        if ticket.dispatches:
            self._demand.start(now, ticket.started - ticket.request.arrival)
        # what a scout counts as is no prediction
        predicted = ticket.outcome is Outcome.GOOD and not ticket.scouts
        if predicted and ticket.expected_service > 0:
            pods = self._scheduler.ledger.all_pods
            pod = next((pod for pod in pods if pod.id == ticket.pod), None)
            if pod is not None:
                speed = (now - ticket.started) / ticket.expected_service
                measured = pod.model.cost(ticket.request.prompt_tokens, ticket.generated) * speed
                self._demand.complete(now, ticket.cost, measured)

    def read(self) -> Reading | None:
        """All signals now; None within the first window."""
        return self._demand.read(self._scheduler.now, self._scheduler.ledger.own_queued_work)

    def predicted_wait(self, reading: Reading) -> float | None:
        """Seconds that a request of average size would wait if it came now; None without pods."""
        scheduler = self._scheduler
        ledger, now = scheduler.ledger, scheduler.now
        if not ledger.pods:
            return None
        typical = Request(
            "typical",
            reading.typical_prompt_tokens,
            reading.typical_output_tokens,
            now,
            now + ledger.policy.budget(None),
        )
        return max(examine(ledger.policy, ledger, typical, now).prediction.wait, 0.0)

    def _cost_model(self) -> ServiceModel:
        """The engine that costs are reckoned with: the last one known when no pod is there.

        A pod that takes no work now, because it is silent or drains, tells it as well.
        """
        ledger = self._scheduler.ledger
        pods = ledger.pods or (() if self._engine else ledger.all_pods)
        if pods:
            self._engine = pods[0].engine
        return self._engine or profile(ledger.policy.backend)


def describe(signals: Signals) -> dict[str, Any] | None:
    """The signals as JSON; None before they are known, and no member that is not known."""
    reading = signals.read()
    if reading is None:
        return None
    values = asdict(reading) | {"predicted_wait": signals.predicted_wait(reading)}
    known = {name: value for name, value in values.items() if value is not None}
    return {"window_seconds": signals.window_seconds} | known


def body(gateway: Gateway) -> bytes:
    """The body of `/signals`: little, for whoever asks many gateways often."""
    loaded = gateway.loaded
    return orjson.dumps(
        {
            "policy": {
                "name": loaded.name,
                "namespace": loaded.namespace,
                "generation": loaded.generation,
            },
            "started_at": gateway.started_at,
            "offered_gpu_seconds": gateway.signals.total,
            "signals": describe(gateway.signals),
        }
    )


GAUGES = {
    "offered_load": (
        "punctual_offered_load",
        "GPU-seconds per second of all arrivals, refused ones included, and backlog over drain.",
    ),
    "load_seconds": (
        "punctual_offered_load_span_seconds",
        "Over how many seconds the offered load is averaged: since its last change.",
    ),
    "backlog_load": ("punctual_backlog_load", "Of this, the work that waits over drain time."),
    "arrivals_per_second": ("punctual_arrivals_per_second", "Requests, retries left out."),
    "rejections_per_second": (
        "punctual_rejections_per_second",
        "Requests refused or dropped from the queue, retries left out.",
    ),
    "rejection_share": ("punctual_rejection_share", "Rejected over arrived, 0 to 1."),
    "queue_wait_mean": ("punctual_queue_wait_mean_seconds", "Wait of requests that started."),
    "queue_wait_p95": ("punctual_queue_wait_p95_seconds", "95 % of them waited at most so long."),
    "predicted_wait": (
        "punctual_predicted_wait_seconds",
        "Wait of a request of average size if it came now.",
    ),
    "prediction_ratio": (
        "punctual_prediction_ratio",
        "Predicted over measured GPU-seconds of completed requests.",
    ),
}
WINDOWS = {"offered_load_short": "short", "offered_load_long": "long"}


def gauges(signals: Signals) -> Iterable[Metric]:
    """The signals for Prometheus; absent before they are known."""
    known = describe(signals)
    if known is None:
        return
    for name, (metric, help_text) in GAUGES.items():
        if name in known:
            yield gauge(metric, help_text, {(): float(known[name])})
    windows: dict[tuple[str, ...], float] = {
        (label,): float(known[name]) for name, label in WINDOWS.items()
    }
    yield gauge("punctual_offered_load_window", "Arrived work by window.", windows, ("window",))
