"""What the front knows of its requests, publishes and counts."""

from __future__ import annotations

import time

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from punctual_model_server.capacity import Capacity
from punctual_model_server.engine.channel import pack
from punctual_model_server.engine.protocol import Calibration, Event, Finish, Ready, Start, Step
from punctual_model_server.engine_client import Engine
from punctual_model_server.errors import ApiError
from punctual_model_server.forecast import Work
from punctual_model_server.generation import Generation, Promise
from punctual_model_server.headers import read_promise, read_request_id
from punctual_model_server.metrics import Metrics
from punctual_model_server.openai import Completion
from punctual_model_server.settings import parse_settings

MODEL = Calibration((0.01, 0.02), 0.1, 0.001, 5.0)
READY = Ready(MODEL, 1.0, 1024, 257, 256, 1024, "test")
SETTINGS = parse_settings(["--model", "random:tiny", "--slots", "2"])


class Pod:
    """An engine client that hears what the tests say, with its capacity and metrics."""

    def __init__(self) -> None:
        self.metrics = Metrics("gpt2-tiny")
        self.engine = Engine(SETTINGS, self.metrics.observe_token, self.metrics.observe_end)
        self.capacity = Capacity(self.engine, SETTINGS)
        self.metrics.watch(self.engine, self.capacity)
        self.seq = 0

    def say(self, *messages: object) -> None:
        for message in messages:
            self.engine.data_received(pack(message))

    def token(self, generation: Generation, finish: Finish | None = None) -> None:
        self.seq += 1
        start = None if generation.generated else Start(generation.rid, 0.5, 0.25)
        self.say(Step(self.seq, 1.0, [Event(generation.rid, 65, finish)], start))

    def end(self, generation: Generation, finish: Finish) -> None:
        self.seq += 1
        self.say(Step(self.seq, 1.0, [Event(generation.rid, -1, finish)], None))

    def submit(self, name: str, tokens: int, promise: Promise | None = None) -> Generation:
        completion = Completion([1] * 10, tokens, 0, 1, None, (), True, False, True, False)
        return self.engine.submit(name, completion, promise or Promise(), 0)


@pytest.fixture
async def pod() -> Pod:
    pod = Pod()
    pod.say(READY)
    return pod


async def test_before_calibration_the_document_is_empty_and_the_state_is_starting() -> None:
    document = Pod().capacity.document()
    assert document["state"] == "starting"
    assert document["step_seconds"] == []
    assert document["kv"] == dict.fromkeys(
        ("bytes_per_token", "total_tokens", "used_tokens", "reserved_tokens"), 0
    )


async def test_the_document_has_the_published_fields(pod: Pod) -> None:
    running, waiting = pod.submit("a", 4), pod.submit("b", 3)
    pod.token(running)
    document = pod.capacity.document()
    assert document["state"] == "ready"
    assert document["step_seconds"] == (0.01, 0.02)
    assert document["prefill_seconds"] == {"base": 0.1, "per_token": 0.001}
    assert document["running"] == [
        {"id": "a", "prompt_tokens": 10, "generated": 1, "max_tokens": 4, "remaining_ms": None}
    ]
    assert document["waiting"] == [
        {"id": "b", "prompt_tokens": 10, "generated": 0, "max_tokens": 3, "remaining_ms": None}
    ]
    assert document["kv"] == {
        "bytes_per_token": 1024,
        "total_tokens": 2048,
        "used_tokens": 11,
        "reserved_tokens": 27,
    }
    assert document["seq"] == 1
    assert waiting.finish is None


async def test_an_ended_request_leaves_the_document(pod: Pod) -> None:
    generation = pod.submit("a", 1)
    pod.token(generation, "length")
    assert pod.capacity.document()["running"] == []
    assert pod.capacity.drain_seconds() == 0.0
    assert generation.finish == "length"


async def test_a_cancelled_request_counts_until_the_engine_has_let_go(pod: Pod) -> None:
    generation = pod.submit("a", 9)
    pod.engine.cancel(generation)
    assert len(pod.engine.waiting) == 1
    pod.end(generation, "cancelled")
    assert pod.engine.waiting == []


async def test_a_dead_engine_loses_every_request(pod: Pod) -> None:
    generation = pod.submit("a", 9)
    pod.engine.connection_lost(None)
    assert pod.engine.state == "dead"
    assert await generation.events() == []
    assert pod.engine.generations == {}


async def test_an_answer_ended_by_a_stop_string_counts_as_stop(pod: Pod) -> None:
    generation = pod.submit("a", 9)
    pod.token(generation)
    generation.stopped = True
    pod.end(generation, "cancelled")
    line = 'vllm:request_success_total{finished_reason="stop",model_name="gpt2-tiny"} 1.0'
    assert line in pod.metrics.render().decode()


async def test_a_drain_does_not_wake_the_dead(pod: Pod) -> None:
    pod.engine.declare_dead("test")
    pod.engine.drain()
    assert pod.engine.state == "dead"


async def test_the_last_word_knows_what_is_here(pod: Pod) -> None:
    newcomer = Work(10, 5, 0.2)
    assert pod.capacity.last_word(newcomer).accepted
    for name in ("a", "b"):
        pod.token(pod.submit(name, 50))
    assert not pod.capacity.last_word(newcomer).accepted


async def test_without_a_calibration_the_last_word_is_no() -> None:
    assert not Pod().capacity.last_word(Work(1, 1, 100.0)).accepted


async def test_a_request_past_its_expected_length_counts_half_of_what_is_possible(
    pod: Pod,
) -> None:
    generation = pod.submit("a", 11, Promise(expected_tokens=2))
    now = time.monotonic()
    assert generation.work(now).tokens_left == 2
    pod.token(generation)
    assert generation.work(now).tokens_left == 1
    pod.token(generation)
    assert generation.work(now).tokens_left == 5


async def test_a_first_token_deadline_is_off_after_the_first_token(pod: Pod) -> None:
    generation = pod.submit("a", 5, Promise(remaining=1.0, first_token_only=True))
    assert generation.work(time.monotonic()).deadline is not None
    pod.token(generation)
    assert generation.work(time.monotonic()).deadline is None


async def test_metrics_carry_vllm_names_and_our_own(pod: Pod) -> None:
    running, whole = pod.submit("a", 9), pod.submit("b", 2)
    pod.token(running)
    pod.token(whole)
    pod.token(whole, "length")
    pod.submit("c", 5)
    pod.metrics.observe_error("queue_full")
    text = pod.metrics.render().decode()
    for line in (
        'vllm:num_requests_running{model_name="gpt2-tiny"} 1.0',
        'vllm:num_requests_waiting{model_name="gpt2-tiny"} 1.0',
        'vllm:prompt_tokens_total{model_name="gpt2-tiny"} 20.0',
        'vllm:generation_tokens_total{model_name="gpt2-tiny"} 3.0',
        'vllm:request_success_total{finished_reason="length",model_name="gpt2-tiny"} 1.0',
        'vllm:time_to_first_token_seconds_count{model_name="gpt2-tiny"} 2.0',
        'vllm:inter_token_latency_seconds_count{model_name="gpt2-tiny"} 1.0',
        'vllm:e2e_request_latency_seconds_count{model_name="gpt2-tiny"} 1.0',
        'vllm:request_queue_time_seconds_sum{model_name="gpt2-tiny"} 1.0',
        'vllm:request_prefill_time_seconds_sum{model_name="gpt2-tiny"} 0.5',
        'punctual_model_server_errors_total{code="queue_full",model_name="gpt2-tiny"} 1.0',
        'punctual_model_server_state{model_name="gpt2-tiny",state="ready"} 1.0',
        'punctual_model_server_step_seconds{batch="2",model_name="gpt2-tiny"} 0.02',
    ):
        assert line in text.splitlines()
    assert 'block_size="16",model_name="gpt2-tiny",num_gpu_blocks="128"' in text


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def test_the_callers_id_is_kept_and_a_bad_one_replaced() -> None:
    assert read_request_id(headers(("X-Request-Id", "abc-1"))) == "abc-1"
    for bad in ("", "a b", "x" * 129, "ä"):
        assert read_request_id(headers(("X-Request-Id", bad))) not in {bad, ""}


def test_a_promise_is_read_from_its_headers() -> None:
    assert read_promise(headers()) == Promise()
    assert read_promise(
        headers(
            ("X-Punctual-Remaining-Ms", " 1500 "),
            ("X-Punctual-Objective", "first_token"),
            ("X-Punctual-Expected-Tokens", "7"),
        )
    ) == Promise(1.5, True, 7)
    assert read_promise(headers(("X-Punctual-Remaining-Ms", "-5"))).remaining == -0.005


@pytest.mark.parametrize("value", ["", "abc", "1.5", "NaN", "inf", "1e9", "5,5", "9" * 13, "٣"])
def test_a_remaining_time_that_is_no_integer_is_a_400(value: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_promise(headers(("X-Punctual-Remaining-Ms", value)))
    assert caught.value.status == 400


def test_two_remaining_times_or_odd_companions_are_a_400() -> None:
    twice = ("X-Punctual-Remaining-Ms", "5"), ("X-Punctual-Remaining-Ms", "6")
    for bad in (
        headers(*twice),
        headers(("X-Punctual-Objective", "soon")),
        headers(("X-Punctual-Expected-Tokens", "0")),
    ):
        with pytest.raises(ApiError):
            read_promise(bad)
