"""What a GPU does with this engine: one script, a table and one line of JSON.

Measures, for GPT-2 small with random weights: step times eager and as CUDA graphs over batch sizes
and context windows, prefill times, greedy equality with `generate()` in fp32, how linear the time
of a request is in its tokens, and how well the forecast predicts a batch. Takes less than four
minutes. Exits 2 where torch sees no GPU; `--cpu`
measures the eager CPU engine instead.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import torch
from transformers import GPT2LMHeadModel

from punctual_model_server.engine.calibration import calibrate
from punctual_model_server.engine.devices import build_cuda_runner
from punctual_model_server.engine.loop import EngineLoop
from punctual_model_server.engine.protocol import NO_TOKEN, Step, Submit
from punctual_model_server.engine.torch_runner import TorchRunner
from punctual_model_server.engine.weights import load_model
from punctual_model_server.forecast import Work, forecast

SLOTS: Final = 32
SIZES: Final = (1, 2, 4, 8, 16, 32)
WINDOWS: Final = (128, 1024)
PREFILLS: Final = (16, 128, 512, 900)
_NO_GPU: Final = 2
_REPEATS: Final = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and print the report."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__)
    parser.add_argument("--model", default="random:gpt2", help="as for the server")
    parser.add_argument("--json", metavar="PATH", help="write the JSON here as well")
    parser.add_argument("--cpu", action="store_true", help="check the CPU engine instead")
    given = parser.parse_args(arguments)
    if not given.cpu and not torch.cuda.is_available():
        print("gpu-check: torch sees no CUDA GPU here; nothing was checked", file=sys.stderr)
        return _NO_GPU
    report = check_cpu(given.model) if given.cpu else check(given.model)
    print(render(report))
    text = json.dumps(report)
    print(text)
    if given.json:
        Path(given.json).write_text(text + "\n")
    return 0 if report["equality_fp32"]["equal"] == report["equality_fp32"]["requests"] else 1


def check(name: str) -> dict[str, Any]:
    """Return the whole report for the model `name` on the GPU."""
    began = time.monotonic()
    report = _header(torch.cuda.get_device_name(), name)
    eager = build_cuda_runner(load_model(name), SLOTS, graphs=False)
    report["prefill_ms"] = time_prefills(eager, PREFILLS)
    report["eager_step_ms"] = time_steps(eager, SIZES, WINDOWS)
    del eager
    captured = time.monotonic()
    graphs = build_cuda_runner(load_model(name), SLOTS)
    report["capture_seconds"] = round(time.monotonic() - captured, 2)
    report["graph_step_ms"] = time_steps(graphs, SIZES, WINDOWS)
    report["linearity"] = check_linearity(graphs, count=50, longest=256)
    report["forecast"] = check_forecast(graphs, slots=SLOTS, count=96)
    exact = load_model(name)
    report["equality_fp32"] = check_equality(
        build_cuda_runner(exact, 4, dtype=torch.float32), exact
    )
    report["memory_mib"] = torch.cuda.max_memory_allocated() >> 20
    report["seconds"] = round(time.monotonic() - began, 1)
    return report


def check_cpu(name: str, slots: int = 4) -> dict[str, Any]:
    """Return the same report for the eager fp32 engine on one CPU thread."""
    began = time.monotonic()
    torch.set_num_threads(1)
    report = _header("cpu, one thread", name)
    runner = TorchRunner(load_model(name), slots)
    report["prefill_ms"] = time_prefills(runner, PREFILLS[:3])
    report["eager_step_ms"] = time_steps(runner, range(1, slots + 1), WINDOWS)
    report["forecast"] = check_forecast(runner, slots, count=24)
    report["linearity"] = check_linearity(runner, count=20, longest=64)
    report["equality_fp32"] = check_equality(runner, runner.model, count=8)
    report["seconds"] = round(time.monotonic() - began, 1)
    return report


def _header(device: str, name: str) -> dict[str, Any]:
    return {"device": device, "torch": torch.__version__, "model": name}


@torch.inference_mode()
def time_steps(
    runner: TorchRunner, sizes: Sequence[int], windows: Sequence[int]
) -> dict[str, dict[str, float]]:
    """Return milliseconds of one step, tokens read back: window, then batch size."""
    return {
        str(window): {str(size): time_step(runner, size, window) for size in sizes}
        for window in windows
    }


def time_step(runner: TorchRunner, size: int, window: int) -> float:
    """Return the median milliseconds of a step of `size` rows with `window` positions each."""
    seconds = []
    for _ in range(_REPEATS):
        runner.store.position.fill_(window - 2)
        synchronize(runner)
        began = time.perf_counter()
        _, greedy = runner.kernel(size, window)
        greedy.tolist()
        seconds.append(time.perf_counter() - began)
    return round(median(seconds) * 1000, 4)


def time_prefills(runner: TorchRunner, lengths: Sequence[int]) -> dict[str, float]:
    """Return the median milliseconds of reading prompts of these lengths."""
    loop, _ = _loop(runner)
    result = {}
    for length in lengths:
        seconds = [_serve_alone(loop, _request(0, [1] * length, 1)) for _ in range(5)]
        result[str(length)] = round(median(seconds) * 1000, 3)
    return result


def check_equality(runner: TorchRunner, model: GPT2LMHeadModel, count: int = 12) -> dict[str, int]:
    """Serve ragged greedy requests in one batch and compare each with `generate()`."""
    rng = random.Random(1)
    vocabulary, context = runner.shape.vocabulary, runner.shape.max_context
    requests = [
        _request(
            rid,
            [rng.randrange(vocabulary) for _ in range(rng.randrange(1, context // 2))],
            rng.choice((4, 16, 48)),
        )
        for rid in range(count)
    ]
    answers = _serve(runner, requests)
    equal = sum(answers[r.rid] == _generate(model, runner.device, r) for r in requests)
    return {"requests": count, "equal": equal}


def check_linearity(runner: TorchRunner, count: int, longest: int) -> dict[str, float]:
    """Fit seconds = base + a * new tokens + c * prompt tokens on one half, test on the other.

    Relative least squares, one request at a time, prompts and answers of 8 to `longest` tokens.
    """
    rng = random.Random(2)
    loop, _ = _loop(runner)
    rows, seconds = [], []
    for rid in range(count):
        prompt, new = rng.randrange(8, longest), rng.randrange(8, longest)
        rows.append((1.0, float(new), float(prompt)))
        seconds.append(_serve_alone(loop, _request(rid, [1] * prompt, new)))
    half = count // 2
    matrix, times = np.array(rows), np.array(seconds)
    weight = 1.0 / times[:half, None]
    fit = np.linalg.lstsq(matrix[:half] * weight, np.ones(half), rcond=None)[0]
    errors = np.abs(matrix[half:] @ fit - times[half:]) / times[half:]
    return {
        "base_ms": round(float(fit[0]) * 1000, 4),
        "new_token_ms": round(float(fit[1]) * 1000, 5),
        "prompt_token_ms": round(float(fit[2]) * 1000, 5),
        "median_error": round(float(np.median(errors)), 4),
        "worst_error": round(float(errors.max()), 4),
    }


def check_forecast(runner: TorchRunner, slots: int, count: int) -> dict[str, Any]:
    """Predict the end of every request of a burst when it arrives, then serve it."""
    loop, said = _loop(runner)
    model = calibrate(loop, runner)
    rng = random.Random(3)
    longest = runner.shape.max_context // 4
    requests = [
        _request(rid, [1] * rng.randrange(4, longest), rng.choice((4, 16, 64)))
        for rid in range(count)
    ]
    work = [Work(len(r.prompt), r.max_tokens) for r in requests]
    predicted = [f.end for f in forecast(model, loop.speed.value, [], work)]
    said.clear()
    began = time.monotonic()
    loop.take(requests)
    ended: dict[int, float] = {}
    while loop.turn():
        now = time.monotonic() - began
        ended.update({e.rid: now for s in said for e in s.events if e.finish is not None})
        said.clear()
    ended.update(
        {e.rid: time.monotonic() - began for s in said for e in s.events if e.finish is not None}
    )
    errors = [abs(p - ended[i]) / ended[i] for i, p in enumerate(predicted)]
    return {
        "slots": slots,
        "step_ms": [round(seconds * 1000, 4) for seconds in model.step_seconds],
        "prefill_ms": [round(model.prefill_base * 1e3, 4), round(model.prefill_per_token * 1e3, 6)],
        "median_error": round(median(errors), 4),
        "p90_error": round(sorted(errors)[int(0.9 * count)], 4),
    }


def render(report: dict[str, Any]) -> str:
    """Return the report as a table for people."""
    lines = [f"{report['device']}, torch {report['torch']}, {report['model']}", ""]
    for kind in ("eager", "graph"):
        for window, times in report.get(f"{kind}_step_ms", {}).items():
            cells = "  ".join(f"B={size}: {ms:.3f}" for size, ms in times.items())
            lines.append(f"{kind} step ms, {window:>4} positions  {cells}")
    prefills = "  ".join(f"{length}: {ms:.2f}" for length, ms in report["prefill_ms"].items())
    lines.append(f"prefill ms by prompt tokens      {prefills}")
    parts = ("linearity", "forecast", "equality_fp32", "capture_seconds", "memory_mib", "seconds")
    lines += [f"{part:<15} {report[part]}" for part in parts if part in report]
    return "\n".join(lines)


def synchronize(runner: TorchRunner) -> None:
    """Wait for the GPU, where there is one."""
    if runner.device.type == "cuda":
        torch.cuda.synchronize()


def _loop(runner: TorchRunner) -> tuple[EngineLoop, list[Step]]:
    said: list[Step] = []
    return EngineLoop(runner, lambda _: [], said.append), said


def _request(rid: int, prompt: list[int], max_tokens: int) -> Submit:
    return Submit(rid, prompt, max_tokens, 0.0, 1.0, 0, True, None, False)


def _serve_alone(loop: EngineLoop, request: Submit) -> float:
    loop.take([request])
    began = time.perf_counter()
    while loop.turn():
        pass
    return time.perf_counter() - began


def _serve(runner: TorchRunner, requests: list[Submit]) -> dict[int, list[int]]:
    loop, said = _loop(runner)
    loop.take(requests)
    while loop.turn():
        pass
    answers: dict[int, list[int]] = {request.rid: [] for request in requests}
    for step in said:
        for event in step.events:
            if event.token != NO_TOKEN:
                answers[event.rid].append(event.token)
    return answers


def _generate(model: GPT2LMHeadModel, device: torch.device, request: Submit) -> list[int]:
    ids = torch.tensor([request.prompt], device=device)
    model.generation_config.eos_token_id = None
    answer = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=request.max_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    tokens: list[int] = answer[0, ids.shape[1] :].tolist()
    return tokens


if __name__ == "__main__":
    sys.exit(main())
