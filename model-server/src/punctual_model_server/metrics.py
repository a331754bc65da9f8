"""Prometheus metrics: vLLM's names where vLLM has one, our own prefix for the rest.

Gauges are computed when scraped. Histograms take intervals whose two ends come from one process.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from punctual_model_server.capacity import Capacity
from punctual_model_server.engine_client import Engine
from punctual_model_server.generation import Generation

OWN = "punctual_model_server_"
STATES = ("starting", "ready", "draining", "dead")
FINISHES = ("stop", "length", "deadline", "cancelled")
_BLOCK_TOKENS = 16
_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
_TOKEN = (0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.012, 0.016, 0.025, 0.05, 0.1, 0.25, 1.0)


class Metrics:
    """The counters and histograms of one server."""

    def __init__(self, model: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._model = model
        self._prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens read")
        self._generated = self._counter("vllm:generation_tokens", "Tokens generated")
        self._first = self._histogram("vllm:time_to_first_token_seconds", "First token", _LATENCY)
        self._between = self._histogram("vllm:inter_token_latency_seconds", "Token gap", _TOKEN)
        self._whole = self._histogram("vllm:e2e_request_latency_seconds", "Whole answer", _LATENCY)
        self._queue = self._histogram("vllm:request_queue_time_seconds", "Engine wait", _LATENCY)
        self._prefill = self._histogram("vllm:request_prefill_time_seconds", "Prefill", _LATENCY)
        self._decode = self._histogram("vllm:request_decode_time_seconds", "Decode", _LATENCY)
        self._ended = Counter(
            "vllm:request_success",
            "Requests ended, by reason (length and stop are whole answers)",
            ["model_name", "finished_reason"],
            registry=self.registry,
        )
        for finish in FINISHES:
            self._ended.labels(model, finish)
        self.last_word_refusals = self._counter(
            OWN + "last_word_refusals", "Requests refused because the deadline could not be met"
        )
        self.errors = Counter(
            OWN + "errors", "Error answers by code", ["model_name", "code"], registry=self.registry
        )

    def watch(self, engine: Engine, capacity: Capacity) -> None:
        """Add the gauges."""
        self.registry.register(_Gauges(self._model, engine, capacity))

    def observe_token(self, generation: Generation, now: float, before: float) -> None:
        """Take one token's time; `before` is the time of the previous token, 0 for the first."""
        self._generated.inc()
        if before:
            self._between.observe(now - before)
            return
        self._first.observe(now - generation.arrived)
        self._prompt_tokens.inc(generation.prompt_tokens)
        if generation.start is not None:
            self._queue.observe(generation.start.queue_seconds)
            self._prefill.observe(generation.start.prefill_seconds)

    def observe_end(self, generation: Generation) -> None:
        """Take a request that the engine let go of."""
        finish = "stop" if generation.stopped else generation.finish or "cancelled"
        self._ended.labels(self._model, finish).inc()
        if finish in {"stop", "length"}:
            self._whole.observe(generation.last_token_at - generation.arrived)
            self._decode.observe(generation.last_token_at - generation.first_token_at)

    def observe_error(self, code: str) -> None:
        """Count an error answer."""
        self.errors.labels(self._model, code).inc()

    def render(self) -> bytes:
        """Return the text exposition."""
        return generate_latest(self.registry)

    def _counter(self, name: str, help_text: str) -> Counter:
        counter = Counter(name, help_text, ["model_name"], registry=self.registry)
        return counter.labels(self._model)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(
            name, help_text, ["model_name"], registry=self.registry, buckets=buckets
        )
        return histogram.labels(self._model)


class _Gauges(Collector):
    """Gauges read from the engine's state at the time of the scrape."""

    def __init__(self, model: str, engine: Engine, capacity: Capacity) -> None:
        self._model = model
        self._engine = engine
        self._capacity = capacity

    def collect(self) -> Iterator[Metric]:
        engine, capacity = self._engine, self._capacity
        kv = capacity.kv()
        used = kv["used_tokens"] / kv["total_tokens"] if kv["total_tokens"] else 0.0
        yield self._gauge("vllm:num_requests_running", "Requests with a slot", len(engine.running))
        yield self._gauge("vllm:num_requests_waiting", "Requests without", len(engine.waiting))
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of KV positions written", used)
        yield self._cache_info(kv["total_tokens"])
        yield self._gauge(OWN + "speed_ratio", "Actual over calibrated time", engine.ratio)
        yield self._gauge(OWN + "engine_age_seconds", "Engine silent for", engine.age_seconds)
        yield self._gauge(OWN + "drain_seconds", "Time until empty", capacity.drain_seconds())
        yield self._gauge(
            OWN + "inflight_gpu_seconds",
            "Engine time still needed",
            capacity.inflight_gpu_seconds(),
        )
        yield self._gauge(
            OWN + "kv_reserved_tokens", "Positions promised to requests", kv["reserved_tokens"]
        )
        yield self._states()
        yield self._steps()

    def _gauge(self, name: str, help_text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, help_text, labels=["model_name"])
        family.add_metric([self._model], value)
        return family

    def _cache_info(self, total_tokens: int) -> Metric:
        family = GaugeMetricFamily(
            "vllm:cache_config_info",
            "KV size as blocks",
            labels=["model_name", "block_size", "num_gpu_blocks"],
        )
        family.add_metric([self._model, str(_BLOCK_TOKENS), str(total_tokens // _BLOCK_TOKENS)], 1)
        return family

    def _states(self) -> Metric:
        family = GaugeMetricFamily(OWN + "state", "1 for the state", labels=["model_name", "state"])
        for state in STATES:
            family.add_metric([self._model, state], float(self._engine.state == state))
        return family

    def _steps(self) -> Metric:
        family = GaugeMetricFamily(
            OWN + "step_seconds", "Calibrated T(B)", labels=["model_name", "batch"]
        )
        model = self._capacity.calibration
        for batch, seconds in enumerate(model.step_seconds if model else (), 1):
            family.add_metric([self._model, str(batch)], seconds)
        return family
