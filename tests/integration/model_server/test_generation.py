"""The engine's tokens against transformers' own `generate()`, in one process."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from punctual_model_server.engine.calibration import calibrate
from punctual_model_server.engine.loop import EngineLoop
from punctual_model_server.engine.models import RANDOM, Architecture
from punctual_model_server.engine.protocol import NO_TOKEN, Cancel, Step, Submit
from punctual_model_server.engine.torch_runner import TorchRunner, batch_sizes
from punctual_model_server.engine.weights import build_random
from support.model_server import events_of, submit

pytestmark = pytest.mark.torch

ARCHITECTURES = {
    "tiny": RANDOM["random:tiny"],
    "small": Architecture(4, 96, 3, 5003, positions=512, initializer_range=0.2),
}


@pytest.fixture(scope="module", params=list(ARCHITECTURES))
def model(request: pytest.FixtureRequest) -> Any:
    torch.set_num_threads(1)
    return build_random(ARCHITECTURES[request.param], seed=3)


@pytest.fixture(scope="module")
def tiny() -> Any:
    torch.set_num_threads(1)
    return build_random(RANDOM["random:tiny"], seed=3)


def generate(model: Any, request: Submit, stop_at_end: bool = False) -> list[int]:
    """Return what `generate()` answers."""
    ids = torch.tensor([request.prompt])
    if not stop_at_end:  # no end token at all, which is what ignore_eos means
        model.generation_config.eos_token_id = None
    answer = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=request.max_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    model.generation_config.eos_token_id = model.config.eos_token_id
    tokens: list[int] = answer[0, ids.shape[1] :].tolist()
    return tokens


def run(runner: TorchRunner, requests: list[Submit], spread: int = 0) -> dict[int, list[int]]:
    """Serve the requests, one new one every `spread` turns (0: all at once)."""
    said: list[Step] = []
    loop = EngineLoop(runner, lambda _: [], said.append)
    upcoming = list(requests)
    turn = 0
    while upcoming or loop.running or loop.waiting:
        if upcoming and (not spread or turn % spread == 0):
            loop.take([upcoming.pop(0)] if spread else upcoming)
            upcoming = upcoming if spread else []
        loop.turn()
        turn += 1
    return {
        rid: [event.token for event in events if event.token != NO_TOKEN]
        for rid, events in events_of(said).items()
    }


def ragged(vocabulary: int, count: int = 10, seed: int = 1) -> list[Submit]:
    """Return requests with prompts of 1 to 200 tokens and answers of 1 to 60."""
    rng = random.Random(seed)
    prompts = [1, 2, 64, 65, 127, 128, 129, 200, 31, 5][:count]
    return [
        submit(
            rid,
            rng.choice([1, 2, 7, 20, 60]),
            prompt=[rng.randrange(vocabulary) for _ in range(length)],
        )
        for rid, length in enumerate(prompts)
    ]


@pytest.mark.parametrize("slots", [1, 3, 4])
@pytest.mark.parametrize("spread", [0, 3])
def test_greedy_answers_equal_generate_in_ragged_batches_with_joins_and_leaves(
    model: Any, slots: int, spread: int
) -> None:
    requests = ragged(model.config.vocab_size)
    answers = run(TorchRunner(model, slots), requests, spread)
    for request in requests:
        assert answers[request.rid] == generate(model, request), f"request {request.rid}"


def test_the_answers_are_not_one_token_repeated(model: Any) -> None:
    requests = [submit(rid, 60, prompt=[rid * 7 + 1] * 3) for rid in range(4)]
    answers = run(TorchRunner(model, 4), requests)
    assert min(len(set(tokens)) for tokens in answers.values()) > 5


def test_the_end_token_ends_an_answer_where_generate_ends_it(tiny: Any) -> None:
    requests = [
        submit(rid, 120, prompt=[rid, rid * 3 % 256], ignore_eos=False) for rid in range(12)
    ]
    answers = run(TorchRunner(tiny, 4), requests)
    for request in requests:
        assert answers[request.rid] == generate(tiny, request, stop_at_end=True)
    assert any(tokens[-1] == 256 for tokens in answers.values())


def test_a_prompt_read_in_chunks_gives_the_same_answer(model: Any) -> None:
    request = ragged(model.config.vocab_size)[7]
    whole = run(TorchRunner(model, 2, prefill_chunk=1000), [request])
    assert run(TorchRunner(model, 2, prefill_chunk=17), [request]) == whole


def test_idle_rows_change_no_answer(model: Any) -> None:
    requests = ragged(model.config.vocab_size, count=6)
    runner = TorchRunner(model, 4)
    runner.rows_for = [0, 4, 4, 4, 4]
    answers = run(runner, requests, spread=2)
    for request in requests:
        assert answers[request.rid] == generate(model, request)


def test_cancelling_one_changes_no_other_answer(model: Any) -> None:
    requests = [r._replace(max_tokens=20) for r in ragged(model.config.vocab_size, count=3)]
    inbox: list[list[object]] = [list(requests), *([[]] * 8), [Cancel(0)]]
    said: list[Step] = []
    loop = EngineLoop(TorchRunner(model, 3), lambda _: inbox.pop(0) if inbox else [], said.append)
    while loop.turn() or inbox:
        pass
    events = events_of(said)
    assert events[0][-1].finish == "cancelled"
    for request in requests[1:]:
        assert [e.token for e in events[request.rid]] == generate(model, request)


def test_a_full_context_is_used_to_its_last_position(model: Any) -> None:
    context = min(model.config.n_positions, 256)
    prompt = [5] * (context - 20)
    request = submit(1, 20, prompt=prompt)
    runner = TorchRunner(model, 2, max_context=context)
    assert run(runner, [request])[1] == generate(model, request)


def test_the_same_seed_gives_the_same_answer_alone_and_among_others(tiny: Any) -> None:
    request = submit(1, 40, prompt=[5, 6, 7], temperature=0.9, top_p=0.8, seed=42)
    others = [submit(rid, 30, prompt=[rid] * rid, temperature=1.5, seed=rid) for rid in range(2, 6)]
    alone = run(TorchRunner(tiny, 4), [request])
    among = run(TorchRunner(tiny, 4), [*others, request], spread=2)
    assert alone[1] == among[1]
    assert run(TorchRunner(tiny, 4), [request._replace(seed=43)])[1] != alone[1]


def test_a_temperature_next_to_nothing_is_greedy(tiny: Any) -> None:
    request = submit(1, 20, prompt=[9])
    cold = request._replace(temperature=1e-300)
    assert run(TorchRunner(tiny, 1), [cold]) == run(TorchRunner(tiny, 1), [request])


@pytest.mark.parametrize("slots", [1, 3])
def test_calibration_gives_times_that_never_fall_and_leaves_the_engine_empty(
    tiny: Any, slots: int
) -> None:
    runner = TorchRunner(tiny, slots)
    loop = EngineLoop(runner, lambda _: [], lambda _: None)
    calibration = calibrate(loop, runner, steps=3)
    assert len(calibration.step_seconds) == slots
    assert list(calibration.step_seconds) == sorted(calibration.step_seconds)
    assert calibration.step_seconds[0] > 0.0
    assert calibration.prefill(100) > 0.0
    assert loop.speed.value > 0.0
    assert not loop.running
    assert not loop.waiting
    assert all(rows >= batch for batch, rows in enumerate(runner.rows_for))


def test_batch_sizes_reach_exactly_the_slots() -> None:
    assert batch_sizes(1) == (1,)
    assert batch_sizes(6) == (1, 2, 3, 4, 5, 6)
    assert batch_sizes(40) == (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 28, 32, 40)
