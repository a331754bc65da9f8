"""Which GPT-2 is served: a folder of weights, or a named architecture with random weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

GPT2_VOCABULARY: Final = 50257
BYTE_VOCABULARY: Final = 257


@dataclass(frozen=True, slots=True)
class Architecture:
    """The figures of a GPT-2 that fix its cost, and the id that ends an answer.

    `initializer_range` and `activation` are for random weights only.
    """

    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int = 1024
    initializer_range: float = 0.02
    activation: str = "gelu_new"
    end_token: int | None = None

    @property
    def eos(self) -> int:
        """The end token: the one that is named, else the last of the vocabulary as in GPT-2."""
        return self.vocabulary - 1 if self.end_token is None else self.end_token

    def kv_bytes_per_token(self, bytes_per_value: int) -> int:
        """Return keys and values of one position over all layers, in bytes."""
        return 2 * self.layers * self.width * bytes_per_value


# `lab`: 5-10 ms a token on one CPU thread, so that the reference workload keeps its proportions on
# a laptop. `tiny`: about 1 ms, vocabulary = the 256 bytes and an end token. Random weights of the
# usual spread repeat one token for ever; the wider spread makes greedy answers wander.
RANDOM: Final = {
    "random:gpt2": Architecture(12, 768, 12, GPT2_VOCABULARY),
    "random:lab": Architecture(
        6, 192, 6, GPT2_VOCABULARY, initializer_range=0.2, activation="gelu_pytorch_tanh"
    ),
    "random:tiny": Architecture(2, 64, 2, BYTE_VOCABULARY, initializer_range=0.3),
}
SERVED_NAMES: Final = {
    "random:gpt2": "gpt2",
    "random:lab": "gpt2-lab",
    "random:tiny": "gpt2-tiny",
}


class ModelError(ValueError):
    """The model cannot be served; the text says which and why."""


def read_architecture(model: str) -> Architecture:
    """Return the architecture behind `--model`, without torch.

    Raises:
        ModelError: unknown name, no such folder, or not a GPT-2.
    """
    if model in RANDOM:
        return RANDOM[model]
    path = Path(model) / "config.json"
    if not path.is_file():
        names = ", ".join(RANDOM)
        raise ModelError(f"model {model!r} must be one of {names} or a folder with config.json")
    try:
        config = json.loads(path.read_text())
        return _from_config(config)
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} must be the configuration of a GPT-2 model: {error!r}") from error


def served_name(model: str) -> str:
    """Return the name clients use when none is given: the short name or the folder's name."""
    return SERVED_NAMES.get(model) or Path(model).resolve().name


def _from_config(config: object) -> Architecture:
    if not isinstance(config, dict):
        raise TypeError("it must be a JSON object")
    if config.get("model_type") != "gpt2":
        raise ModelError(f"model_type must be 'gpt2', got {config.get('model_type')!r}")

    def figure(name: str, default: int) -> int:
        value = config.get(name, default)
        if not isinstance(value, int) or value < 1:
            raise ModelError(f"{name} must be a positive integer, got {value!r}")
        return value

    return Architecture(
        layers=figure("n_layer", 12),
        width=figure("n_embd", 768),
        heads=figure("n_head", 12),
        vocabulary=figure("vocab_size", GPT2_VOCABULARY),
        positions=figure("n_positions", 1024),
        end_token=_end_token(config.get("eos_token_id")),
    )


def _end_token(value: object) -> int | None:
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, int) and first >= 0 else None
