"""The state of the gateway: `/stats`, the list of models, and the gauges of `/metrics`.

A snapshot is built in one go without a wait, so all its numbers are of one moment.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import orjson

from punctual_admission.memory import free_memory
from punctual_gateway import lengths, signals
from punctual_gateway.metrics import count, gauge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

    from punctual_admission.pool import Pod
    from punctual_admission.ticket import Ticket
    from punctual_gateway.gateway import Gateway
    from punctual_gateway.monitor import Monitor

LONGEST_QUEUE_SHOWN = 200

Labels = tuple[str, ...]


def snapshot(gateway: Gateway) -> bytes:
    """The body of `/stats`."""
    ledger = gateway.scheduler.ledger
    now = gateway.scheduler.now
    return orjson.dumps(
        {
            "policy": _policy(gateway),
            "ready": gateway.ready,
            "draining": ledger.draining,
            "pool": {
                "pods": len(ledger.pods),
                "queued": len(ledger.own_queue),
                "running": ledger.running,
                "queued_gpu_seconds": round(ledger.own_queued_work, 6),
                "running_gpu_seconds": round(ledger.running_work, 6),
            },
            "queue": [_ticket(t, now) for t in ledger.own_queue[:LONGEST_QUEUE_SHOWN]],
            "pods": [_pod(gateway, monitor, now) for monitor in gateway.pods.monitors],
            "estimator": {
                "sojourn_margin": ledger.sojourns.factor,
                "service_margin": ledger.services.factor,
                "records": ledger.services.records,
                "counts_tokens": gateway.counter.counts,
                "lengths": lengths.describe(ledger),
            },
            "counters": counters(gateway),
            "tiers": tiers(gateway),
            "quota_clients": len(ledger.accounts.quotas),
            "offered_gpu_seconds": gateway.offered_work,
            "signals": signals.describe(gateway.signals),
            "retry_budget": gateway.retry_budget.tokens,
            "decision_log": _decision_log(gateway),
            "peers": sorted(gateway.peers.connected),
            "started_at": gateway.started_at,
        }
    )


def _policy(gateway: Gateway) -> dict[str, Any]:
    loaded, policy = gateway.loaded, gateway.policy
    return {
        "name": loaded.name,
        "namespace": loaded.namespace,
        "generation": loaded.generation,
        "model": policy.model,
        "mode": policy.mode.value,
        "enforcement": policy.enforcement.value,
        "objective": policy.objective.value,
        "default_deadline_ms": policy.deadline.default_milliseconds,
        "maximum_deadline_ms": policy.deadline.maximum_milliseconds,
        "problems": list(gateway.policy_file.problems),
        "reload_failures": gateway.policy_file.failures,
    }


def _decision_log(gateway: Gateway) -> dict[str, Any] | None:
    written = gateway.decision_log
    if written is None:
        return None
    return {"lines": written.lines, "dropped": written.dropped, "problem": written.problem}


def _ticket(ticket: Ticket, now: float) -> dict[str, Any]:
    return {
        "id": ticket.request.id,
        "waited_ms": round((now - ticket.request.arrival) * 1000, 3),
        "left_ms": round((ticket.request.deadline - now) * 1000, 3),
        "prompt_tokens": ticket.request.prompt_tokens,
        "max_tokens": ticket.request.output_tokens,
        "gpu_ms": round(ticket.cost * 1000, 3),
    }


def _pod(gateway: Gateway, monitor: Monitor, now: float) -> dict[str, Any]:
    pod = find_pod(gateway, monitor)
    report, age = monitor.report, monitor.age
    shown: dict[str, Any] = {
        "id": monitor.pod_id,
        "url": monitor.url,
        "state": "unknown" if report is None else report.state,
        "available": pod is not None and pod.available,
        "problem": monitor.problem,
        "model": None if report is None else report.model,
        "age_seconds": None if age is None else round(age, 4),
        "max_context": monitor.context,
        "speaks_capacity": monitor.speaks_capacity,
        "stuck": monitor.stuck_count,
    }
    return shown if pod is None else shown | _engine(pod, now)


def _engine(pod: Pod, now: float) -> dict[str, Any]:
    model = pod.model
    return {
        "slots": pod.slots,
        "running": len(pod.residents),
        "foreign": len(pod.foreign),
        "memory_tokens": pod.memory_tokens,
        "free_memory_tokens": None if pod.memory_tokens is None else free_memory(pod),
        "speed_ratio": round(pod.speed.value, 4),
        "step_seconds": model.step_seconds,
        "prefill_seconds": {"base": model.prefill_base, "per_token": model.prefill_per_token},
        "paused_ms": max(round((pod.paused_until - now) * 1000, 3), 0.0),
    }


def find_pod(gateway: Gateway, monitor: Monitor) -> Pod | None:
    """The ledger's pod behind an address, if there is one."""
    pods = gateway.scheduler.ledger.all_pods
    return next((pod for pod in pods if pod.id == monitor.pod_id), None)


def counters(gateway: Gateway) -> dict[str, dict[str, int]]:
    """Ended requests by outcome, and within it by reason (`total` is the sum)."""
    counted: dict[str, dict[str, int]] = {}
    for (outcome, reason), number in gateway.metrics.requests.items():
        by_reason = counted.setdefault(outcome.value, {"total": 0})
        by_reason["total"] += number
        if reason is not None:
            by_reason[reason.value] = number
    return counted


def tiers(gateway: Gateway) -> dict[str, dict[str, int]]:
    """Ended requests by tier and outcome, where the policy has tiers; empty name: of none."""
    counted: dict[str, dict[str, int]] = {}
    for (tier, outcome), number in gateway.metrics.tiers.values.items():
        counted.setdefault(tier, {})[outcome] = int(number)
    return counted


def models(gateway: Gateway) -> bytes:
    """The body of `/v1/models`."""
    return orjson.dumps({"object": "list", "data": [_model(gateway)]})


def model(gateway: Gateway) -> bytes:
    """The body of `/v1/models/{model}`."""
    return orjson.dumps(_model(gateway))


def _model(gateway: Gateway) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": gateway.policy.model,
        "object": "model",
        "created": int(gateway.started_at),
        "owned_by": "punctual",
    }
    context = gateway.pods.context
    return shown if context is None else shown | {"max_model_len": context}


def gauges(gateway: Gateway) -> Iterable[Metric]:
    """Everything that has a value now."""
    ledger = gateway.scheduler.ledger
    single: dict[str, tuple[str, float]] = {
        "punctual_queue_requests": ("Requests that wait.", len(ledger.own_queue)),
        "punctual_running_requests": ("Requests that run.", ledger.running),
        "punctual_queued_gpu_seconds": ("Work that waits.", ledger.own_queued_work),
        "punctual_running_gpu_seconds": ("Work left of running requests.", ledger.running_work),
        "punctual_pods_available": ("Pods that take work.", len(ledger.pods)),
        "punctual_pods_known": ("Pods that were discovered.", len(list(gateway.pods.monitors))),
        "punctual_policy_generation": ("Policy in force.", gateway.loaded.generation),
        "punctual_promise_confidence": (
            "Share of the promises that are to be kept, 0 to 1.",
            gateway.policy.estimate.confidence_percent / 100,
        ),
        "punctual_policy_invalid": (
            "1 when the policy file is invalid.",
            bool(gateway.policy_file.problems),
        ),
        "punctual_retry_budget": ("Retries that are allowed now.", gateway.retry_budget.tokens),
        "punctual_quota_clients": ("Clients with a quota.", len(ledger.accounts.quotas)),
        "punctual_draining": ("1 while shutting down.", not gateway.accepting),
    }
    for name, (help_text, value) in single.items():
        yield gauge(name, help_text, {(): float(value)})
    yield count(
        "punctual_offered_gpu_seconds",
        "Predicted GPU-seconds of all arrivals, refused ones included, retries left out.",
        gateway.offered_work,
    )
    yield count(
        "punctual_policy_reload_failures",
        "Invalid versions of the policy file.",
        gateway.policy_file.failures,
    )
    if (written := gateway.decision_log) is not None:
        yield count("punctual_decision_log_lines", "Lines of the decision log.", written.lines)
        yield count(
            "punctual_decision_log_dropped_lines",
            "Lines that the decision log could not take.",
            written.dropped,
        )
    yield _policy_info(gateway)
    if gateway.settings.peers or gateway.settings.peer_slices:
        connected: dict[Labels, float] = {(): float(len(gateway.peers.connected))}
        yield gauge("punctual_peers", "Other gateways that share their queue.", connected)
    margins: dict[Labels, float] = {
        ("sojourn",): ledger.sojourns.factor,
        ("service",): ledger.services.factor,
    }
    yield gauge("punctual_margin", "Safety factor on predictions.", margins, ("of",))
    yield from lengths.gauges(ledger)
    yield from signals.gauges(gateway.signals)
    yield from _pod_gauges(gateway)


def _policy_info(gateway: Gateway) -> Metric:
    policy = gateway.policy
    labels = (policy.model, policy.mode.value, policy.enforcement.value)
    return gauge(
        "punctual_policy_info",
        "1 for what the policy in force says.",
        {labels: 1.0},
        ("model", "mode", "enforcement"),
    )


def _pod_gauges(gateway: Gateway) -> Iterable[Metric]:
    monitors = list(gateway.pods.monitors)
    pods: dict[Labels, Pod | None] = {(m.url,): find_pod(gateway, m) for m in monitors}
    known = {key: pod for key, pod in pods.items() if pod is not None}
    ages: dict[Labels, float] = {(m.url,): math.inf if m.age is None else m.age for m in monitors}
    families: dict[str, tuple[str, dict[Labels, float]]] = {
        "punctual_pod_available": (
            "1 when it takes work.",
            {key: float(pod is not None and pod.available) for key, pod in pods.items()},
        ),
        "punctual_pod_state_age_seconds": ("Since it last answered.", ages),
        "punctual_pod_slots": ("Slots.", {k: float(p.slots) for k, p in known.items()}),
        "punctual_pod_running": (
            "Own requests on it.",
            {k: float(len(p.residents)) for k, p in known.items()},
        ),
        "punctual_pod_memory_tokens": (
            "Tokens of key-value memory, where it is known.",
            {k: float(p.memory_tokens) for k, p in known.items() if p.memory_tokens is not None},
        ),
        "punctual_pod_free_memory_tokens": (
            "Of these, what nobody has reserved.",
            {k: free_memory(p) for k, p in known.items() if p.memory_tokens is not None},
        ),
        "punctual_pod_foreign": (
            "Requests of others on it.",
            {k: float(len(p.foreign)) for k, p in known.items()},
        ),
        "punctual_pod_speed_ratio": (
            "Measured over published service times.",
            {k: p.speed.value for k, p in known.items()},
        ),
    }
    for name, (help_text, values) in families.items():
        # not "pod": that is what Prometheus calls the gateway's own pod
        yield gauge(name, help_text, values, ("backend",))
