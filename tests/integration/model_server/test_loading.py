"""Real folders of weights."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from support.model_server import model_server

pytestmark = pytest.mark.torch


def generate(folder: Path, prompt: list[int], tokens: int) -> list[int]:
    import torch  # noqa: PLC0415 - only here, so that collecting the tests stays fast

    from punctual_model_server.engine.weights import load_model  # noqa: PLC0415

    model: Any = load_model(str(folder))
    model.generation_config.eos_token_id = None
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)
    answer = model.generate(ids, attention_mask=mask, max_new_tokens=tokens, pad_token_id=0)
    result: list[int] = answer[0, len(prompt) :].tolist()
    return result


async def test_a_folder_is_served_with_its_own_weights_tokenizer_and_name(
    client: aiohttp.ClientSession, tmp_path: Path, model_folder: Path
) -> None:
    with model_server(tmp_path, "--model", str(model_folder), "--slots", "2") as server:
        server.wait_ready()
        body = {
            "model": "my-gpt2",
            "prompt": "the inn",
            "max_tokens": 30,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        async with client.post(server.url + "/v1/completions", json=body) as answer:
            assert answer.status == 200
            choice = (await answer.json())["choices"][0]
        document = server.capacity()
    vocabulary = json.loads((model_folder / "vocab.json").read_text())
    prompt = [vocabulary[t] for t in ("the", "\u0120", "in", "n")]
    assert choice["token_ids"] == generate(model_folder, prompt, 30)
    assert document["max_context"] == 128
    assert document["kv"]["bytes_per_token"] == 2 * 2 * 32 * 4


def damaged(folder: Path, target: Path, damage: str) -> Path:
    """Return a copy of the folder with broken weights."""
    shutil.copytree(folder, target)
    weights = target / "model.safetensors"
    if damage == "missing":
        weights.unlink()
    elif damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:1000])
    else:
        config = json.loads((target / "config.json").read_text())
        (target / "config.json").write_text(json.dumps(config | {"n_embd": 64}))
    return target


@pytest.mark.parametrize("damage", ["missing", "truncated", "wrong shape"])
def test_weights_that_cannot_be_read_are_an_error_that_names_the_folder(
    tmp_path: Path, model_folder: Path, damage: str
) -> None:
    from punctual_model_server.engine.models import ModelError  # noqa: PLC0415
    from punctual_model_server.engine.weights import load_model  # noqa: PLC0415

    folder = damaged(model_folder, tmp_path / "broken", damage)
    with pytest.raises(ModelError, match=re.escape(str(folder))):
        load_model(str(folder))


def test_a_model_that_cannot_be_loaded_ends_the_process_with_the_reason(
    tmp_path: Path, model_folder: Path
) -> None:
    folder = damaged(model_folder, tmp_path / "broken", "truncated")
    with model_server(tmp_path, "--model", str(folder)) as server:
        assert server.process.wait(100) == 2
        assert "cannot serve" in server.log_text
        assert str(folder) in server.log_text
