"""The arithmetic and the small parts of the benchmark."""

from __future__ import annotations

import io
import os
import random
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from rich.console import Console

from punctual_lab.bench import others
from punctual_lab.bench.decision import measure_at
from punctual_lab.bench.forecast_error import build_trace, summarise_forecast
from punctual_lab.bench.forward import add_differences, describe
from punctual_lab.bench.output import build_bench_report, print_bench
from punctual_lab.bench.runner import describe_machine
from punctual_lab.bench.tables import DECISION_KINDS
from punctual_lab.bench.upstream import answer_completion, split_request
from punctual_lab.bench.usage import read_usage
from punctual_lab.report.document import build_html
from punctual_lab.traces import REFERENCE_MIX

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("length", [10, 100])
def test_decisions_are_measured_with_the_queue_full(length: int) -> None:
    """Each kind of decision has a median and a p99 in microseconds."""
    costs = measure_at(length, 5, random.Random(1))
    assert set(costs) == {"admit", "refuse", "refuse_unchanged"}
    assert all(0 < cost["p50_us"] <= cost["p99_us"] for cost in costs.values())


def test_added_latency_is_what_the_direct_way_does_not_take() -> None:
    """Differences are of the same quantile, and multiples are of what the bare proxy adds."""
    samples = {"direct": [0.001], "bare aiohttp proxy": [0.003], "punctual": [0.004]}
    results = add_differences({name: describe(times, 1.0, 0.0) for name, times in samples.items()})
    assert results["punctual"]["added_ms"] == {"p50": 3.0, "p99": 3.0}
    assert results["punctual"]["of_bare_proxy"] == {"p50": 1.5, "p99": 1.5}
    assert results["direct"]["of_bare_proxy"] is None


def test_without_the_bare_proxy_there_is_no_multiple() -> None:
    """A comparison may leave the bare proxy out."""
    results = add_differences({name: describe([0.001], 1.0, 0.0) for name in ("direct", "nginx")})
    assert results["nginx"]["of_bare_proxy"] is None


def test_where_noise_left_no_floor_there_is_no_multiple() -> None:
    """A bare proxy that came out no slower than the direct way gives no ratio."""
    samples = {"direct": [0.002], "bare aiohttp proxy": [0.002], "punctual": [0.004]}
    results = add_differences({name: describe(times, 1.0, 0.0) for name, times in samples.items()})
    assert results["punctual"]["of_bare_proxy"] == {"p50": None, "p99": None}


def test_forecast_errors_of_nothing_are_none() -> None:
    """No answered request, no error."""
    assert summarise_forecast(())["median"] is None


def test_the_forecast_trace_offers_more_than_the_server_can_do() -> None:
    """The rate follows the server's own service model."""
    capacity = {
        "slots": 4,
        "step_seconds": [0.008, 0.01, 0.011, 0.012],
        "prefill_seconds": {"base": 0.008, "per_token": 0.0001},
    }
    trace = build_trace(capacity, seconds=200.0, seed=1)
    each = 0.0096 + (REFERENCE_MIX.mean() - 1) * 0.003
    assert len(trace) / 200.0 * each == pytest.approx(1.5, rel=0.1)


def test_a_missing_program_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the package."""
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(others.MissingProgramError, match="apt-get install haproxy"):
        others.find_debian_program("haproxy")


def test_the_cache_folder_may_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PUNCTUAL_CACHE moves what is downloaded."""
    monkeypatch.setenv("PUNCTUAL_CACHE", str(tmp_path))
    assert others.cache_folder() == tmp_path
    monkeypatch.delenv("PUNCTUAL_CACHE")
    assert others.cache_folder().name == "punctual"


def test_the_upstream_waits_for_whole_requests() -> None:
    """A request is answered when head and body are there; the rest stays for the next."""
    whole = b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
    assert split_request(whole[:20]) is None
    assert split_request(whole[:-1]) is None
    assert split_request(whole + b"GET") == (whole[: whole.index(b"\r\n\r\n")], b"{}", b"GET")


def test_the_upstream_streams_one_event_a_token() -> None:
    """A streamed completion has its tokens, a usage event when asked, and the end mark."""
    body = b'{"max_tokens": 3, "stream": true, "stream_options": {"include_usage": true}}'
    payload = answer_completion(body).partition(b"\r\n\r\n")[2]
    events = [event.removeprefix(b"data: ") for event in payload.strip().split(b"\n\n")]
    assert events[-1] == b"[DONE]"
    chunks = [orjson.loads(event) for event in events[:-1]]
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None, None, "length"]
    assert chunks[-1]["usage"]["completion_tokens"] == 3


def test_usage_sums_a_process_group() -> None:
    """Our own group uses memory; a group that does not exist uses nothing."""
    assert read_usage(os.getpgrp()).resident_bytes > 1 << 20
    gone = read_usage(2**22 + 1)
    assert (gone.cpu_seconds, gone.resident_bytes) == (0.0, 0)


def bench_summary() -> dict[str, Any]:
    """Build the numbers of a benchmark without running it."""
    costs = {kind: {"p50_us": 40.0, "p99_us": 90.0} for kind in DECISION_KINDS}
    times = {"p50": 0.5, "p99": 1.0}
    compared = {"gateway_ms": times, "bare_ms": times, "ratio": times}
    rate = {"per_second": 1.0, "per_cpu_second": 9000.0}
    samples = {"direct": [0.001], "bare aiohttp proxy": [0.003], "punctual": [0.004]}
    rows = add_differences({name: describe(s, 1.0, 0.0) for name, s in samples.items()})
    return {
        "machine": describe_machine(),
        "decision": {"10": costs, "100": costs, "1000": costs},
        "refusal": {
            "sustained": compared,
            "burst_of_30": compared,
            "rate": {"gateway": rate, "bare": rate, "share_of_bare": 1.0},
        },
        "forwarding": {"1": rows, "32": rows},
        "missing": {"haproxy": "haproxy is not installed; on Debian: apt-get install haproxy"},
        "forecast_error": {"1": summarise_forecast(()), "4": summarise_forecast(())},
        "memory_mib": {"punctual": 48.3},
    }


def test_the_tables_of_a_benchmark_fit_a_terminal() -> None:
    """Every part has its table, what is missing is named, and at 80 columns no number is cut."""
    console = Console(width=80, file=io.StringIO(), record=True)
    print_bench(bench_summary(), console)
    text = console.export_text()
    for words in ("queued", "30 at once", "bare aiohttp", "slots", "MiB", "apt-get install"):
        assert words in text
    assert "…" not in text


def test_the_report_of_a_benchmark_says_what_was_not_measured() -> None:
    """The report holds the tables, the picture and the note on a missing program."""
    html = build_html(build_bench_report(bench_summary(), "make bench"))
    for words in ("apt-get install haproxy", "make bench", "<svg", "bare aiohttp 503"):
        assert words in html
