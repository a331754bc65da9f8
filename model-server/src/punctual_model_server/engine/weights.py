"""Building the torch model: seeded random weights or `from_pretrained` of a folder."""

from __future__ import annotations

import torch
from safetensors import SafetensorError
from transformers import GPT2Config, GPT2LMHeadModel

from punctual_model_server.engine.models import RANDOM, Architecture, ModelError


def load_model(model: str, seed: int = 0) -> GPT2LMHeadModel:
    """Return the model in fp32 on the CPU, ready for inference.

    Raises:
        ModelError: the folder's weights cannot be read or do not fit its configuration.
    """
    if model in RANDOM:
        return build_random(RANDOM[model], seed)
    try:
        loaded, info = GPT2LMHeadModel.from_pretrained(
            model, local_files_only=True, output_loading_info=True, dtype=torch.float32
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"the weights in {model!r} cannot be loaded: {error}") from error
    if missing := sorted(info["missing_keys"]):
        raise ModelError(f"the weights in {model!r} lack {', '.join(missing[:5])}")
    return loaded.eval()


def build_random(architecture: Architecture, seed: int = 0) -> GPT2LMHeadModel:
    """Return a model of this architecture with weights drawn from `seed`."""
    eos = architecture.vocabulary - 1
    config = GPT2Config(
        n_layer=architecture.layers,
        n_embd=architecture.width,
        n_head=architecture.heads,
        vocab_size=architecture.vocabulary,
        n_positions=architecture.positions,
        initializer_range=architecture.initializer_range,
        activation_function=architecture.activation,
        bos_token_id=eos,
        eos_token_id=eos,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GPT2LMHeadModel(config).eval()
