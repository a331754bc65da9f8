"""The small parts: retry budget, own work, tokens, settings, pod reports, policy files."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import Whitespace

from punctual_admission.fields import PolicyError
from punctual_admission.policy import policy_from_spec
from punctual_gateway.capacity import (
    CapacityError,
    profile,
    read_capacity,
    read_load,
    read_models,
)
from punctual_gateway.discovery import StaticDiscovery
from punctual_gateway.own_work import MEMORY, OwnWork
from punctual_gateway.policy_file import LoadedPolicy, PolicyFile, parse_policy
from punctual_gateway.retry_budget import RetryBudget
from punctual_gateway.settings import base_url, parse_settings
from punctual_gateway.tokens import TokenCounter, TokenizerError, estimate, load_counter


def test_retry_budget_allows_a_few_and_then_one_for_ten_dispatches() -> None:
    budget = RetryBudget()
    assert [budget.try_retry() for _ in range(5)] == [True, True, True, False, False]
    for _ in range(11):
        budget.dispatched()
    assert [budget.try_retry() for _ in range(2)] == [True, False]
    for _ in range(1000):
        budget.dispatched()
    assert budget.tokens == 10


def test_own_work_is_remembered_a_while_after_its_end() -> None:
    own = OwnWork()
    own.sent("a")
    own.sent("a")
    own.ended("a", "pod", 0.0)
    own.ended("a", "pod", 1.0)
    assert "a" in own
    assert own.recent("pod", 0.5) == 1
    assert own.recent("other", 0.0) == 0
    own.sent("b")
    own.ended("b", "pod", MEMORY + 2)
    assert "a" not in own
    assert "b" in own


def test_estimate_is_a_quarter_of_ascii_bytes_and_each_other_byte() -> None:
    assert estimate("") == 0
    assert estimate("hello world") == 3
    assert estimate("日本") == 6
    assert estimate("ab日") == 1 + 3
    assert estimate("\ud800") == 3


def test_tokenizer_file_counts_exactly(tmp_path: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))  # noqa: S106
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        counter = load_counter(path)
        assert counter.counts
        assert counter.text("a b a") == (3, True)
        assert counter.text("a " * 20_000)[1] is False


def test_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        load_counter(tmp_path)


def test_chat_counts_texts_and_parts() -> None:
    counter = TokenCounter()
    parts = [{"type": "text", "text": "abcdefgh"}, {"type": "image_url"}, "odd"]
    messages: list[dict[str, Any]] = [{"content": "abcd"}, {"content": parts}, {"content": None}]
    assert counter.messages(messages) == 3 + (4 + 1) + (4 + 2 + 1024 + 1024) + 4


@pytest.mark.parametrize("kind", ["tokenizer.json", "vocab.json and merges.txt"])
def test_tokenizer_counts_a_request_up_to_a_size_and_estimates_a_longer_one(
    tmp_path: Path, kind: str
) -> None:
    vocabulary = {"a": 0, "b": 1, "ab": 2}
    if kind == "tokenizer.json":
        Tokenizer(BPE(vocab=vocabulary, merges=[("a", "b")])).save(str(tmp_path / kind))
    else:
        (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
        (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    counter = load_counter(tmp_path)
    assert counter.text("ab" * 1000) == (1000, True)
    assert counter.text("ab" * 20_000) == (10_000, False)
    assert counter.text("\N{GRINNING FACE}" * 9000) == (36_000, False)
    assert counter.messages([{"content": "ab" * 100}] * 5) == 3 + 5 * (4 + 100)
    assert counter.messages([{"content": "ab" * 5000}] * 5) == 3 + 5 * (4 + 2500)


def test_backend_may_be_named_twice_and_counts_once() -> None:
    settings = parse_settings(
        ["--policy", "p", "--backend", "http://x:1/", "--backend", "http://x:1"]
    )
    assert settings.backends == ("http://x:1",)


@pytest.mark.parametrize("url", ["", "x", "ftp://x", "http://", "http://x?y=1"])
def test_wrong_backend_is_an_error(url: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be http"):
        base_url(url)


def report(**changes: Any) -> dict[str, Any]:
    """A valid report with changes."""
    given: dict[str, Any] = {
        "model": "lab", "instance": "1", "state": "ready", "step_seconds": [0.01, 0.012],
        "prefill_seconds": {"base": 0.001, "per_token": 0.0}, "ratio": 1.5, "max_context": 8,
    }  # fmt: skip
    return given | changes


def test_report_is_read() -> None:
    running = [{"id": "a", "prompt_tokens": 3, "generated": 2, "max_tokens": 5}]
    waiting = [{"id": "b", "prompt_tokens": 4, "generated": 0, "max_tokens": 6}]
    read = read_capacity(report(running=running, waiting=waiting))
    assert read.service is not None
    assert (read.service.slots, read.ratio, read.max_context) == (2, 1.5, 8)
    left = [(r.id, r.foreign.remaining, r.foreign.unstarted_prompt_tokens) for r in read.residents]
    assert left == [("a", 3, None), ("b", 6, 4)]


def test_noise_in_a_measured_table_is_taken_out() -> None:
    read = read_capacity(report(step_seconds=[0.01, 0.009, 0.02]))
    assert read.service is not None
    assert read.service.step_seconds == (0.01, 0.01, 0.02)


@pytest.mark.parametrize(
    "given",
    [
        None, [], {}, report(step_seconds=[]), report(step_seconds=["x"]),
        report(step_seconds=[float("nan")]), report(step_seconds=[-1]), report(ratio=float("inf")),
        report(prefill_seconds=None), report(running=[{"id": "a"}]), report(running=["a"]),
    ],
)  # fmt: skip
def test_report_that_makes_no_sense_is_an_error(given: object) -> None:
    with pytest.raises(CapacityError):
        read_capacity(given)


def test_report_of_a_starting_pod_has_no_service_model() -> None:
    assert read_capacity(report(state="starting", step_seconds=[])).service is None


def test_load_of_other_servers() -> None:
    text = (
        "# TYPE vllm:num_requests_running gauge\n"
        'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 2.0\n'
    )
    assert read_load(text) == 5
    assert read_load("other 1\n") is None


def test_models_of_other_servers() -> None:
    assert read_models({"data": [{"id": "m", "max_model_len": 99}, {"id": "n"}, "odd"]}) == {
        "m": 99,
        "n": None,
    }
    with pytest.raises(CapacityError):
        read_models({"models": []})


def test_profile_repeats_the_last_step_for_larger_batches() -> None:
    policy = policy_from_spec(
        {"model": "m", "backend": {"slots": 4, "stepMicroseconds": [1000, 2000]}}
    )
    assert profile(policy.backend).step_seconds == (0.001, 0.002, 0.002, 0.002)
    default = policy_from_spec({"model": "m"})
    assert len(profile(default.backend).step_seconds) == default.backend.slots


async def test_static_discovery_yields_its_list_once() -> None:
    found = [urls async for urls in StaticDiscovery(["http://a:1"]).watch()]
    assert found == [frozenset({"http://a:1"})]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"{", "must be YAML"),
        (b"\xff\xfe\xff", "must be YAML"),
        (b"since: 2026-99-99", "must be YAML"),
        (b"since: !!timestamp never", "must be YAML"),
        (b"? [a]\n: b", "must be YAML"),
        (b"just text", "must be an object"),
        (b"apiVersion: v1\nkind: Pod\n", "apiVersion must be"),
        (b"kind: AdmissionPolicy\nkind: AdmissionPolicy\n", "'kind' must occur once"),
        (b"apiVersion: punctual.dev/v1alpha1\nkind: AdmissionPolicy\n", "spec must be an object"),
    ],
)
def test_file_that_is_no_policy_says_why(text: bytes, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        parse_policy(text)


VALID = (
    b"apiVersion: punctual.dev/v1alpha1\nkind: AdmissionPolicy\n"
    b"metadata: {name: a, namespace: b, generation: %d}\nspec: {model: lab}\n"
)


def test_policy_file_is_reloaded_only_when_its_content_changes(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(VALID % 1)
    seen: list[int] = []
    file = PolicyFile(path, lambda loaded: seen.append(loaded.generation))
    assert file.load().name == "a"
    assert not file.try_reload()
    path.write_bytes(VALID % 1)
    assert not file.try_reload()
    path.write_bytes(VALID % 20)
    assert file.try_reload()
    assert seen == [20]


def test_policy_file_that_vanishes_is_a_problem_until_it_is_back(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(VALID % 1)
    file = PolicyFile(path, lambda _: None)
    file.load()
    path.unlink()
    for _ in range(2):
        assert not file.try_reload()
    assert "must be readable" in file.problems[0]
    assert file.failures == 1
    path.write_bytes(VALID % 1)
    file.try_reload()
    assert not file.problems


async def test_watching_looks_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(VALID % 1)
    changed = asyncio.Event()
    file = PolicyFile(path, lambda _: changed.set())
    file.load()
    watching = asyncio.create_task(file.watch(0.001))
    path.write_bytes(VALID % 22)
    await changed.wait()
    watching.cancel()


async def test_version_that_cannot_be_applied_does_not_end_the_watching(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_bytes(VALID % 1)
    applied = asyncio.Event()

    def apply(loaded: LoadedPolicy) -> None:
        if loaded.generation == 22:
            path.write_bytes(VALID % 333)
            raise RuntimeError("no")
        applied.set()

    file = PolicyFile(path, apply)
    file.load()
    watching = asyncio.create_task(file.watch(0.001))
    path.write_bytes(VALID % 22)
    await applied.wait()
    watching.cancel()
