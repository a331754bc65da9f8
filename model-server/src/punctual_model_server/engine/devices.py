"""Choosing the device and building the runner for it."""

from __future__ import annotations

import torch
from transformers import GPT2LMHeadModel

from punctual_model_server.engine.graphs import GraphStep
from punctual_model_server.engine.models import ModelError
from punctual_model_server.engine.torch_runner import TorchRunner
from punctual_model_server.engine.weights import load_model
from punctual_model_server.settings import Settings


def build_runner(settings: Settings) -> TorchRunner:
    """Return a runner on the chosen device.

    CPU: fp32, eager, `threads` threads. CUDA: bf16 with CUDA graphs; the exact gelu of GPT-2 is
    eight kernels where torch's tanh form, the same function, is one.

    Raises:
        ModelError: `cuda` was asked for and there is no GPU, or the model cannot be loaded.
    """
    device = choose_device(settings.device)
    torch.set_num_threads(settings.threads)
    model = load_model(settings.model, settings.seed)
    if device.type == "cuda":
        return build_cuda_runner(model, settings.slots, settings.max_context)
    return TorchRunner(model, settings.slots, settings.max_context, settings.prefill_chunk)


def build_cuda_runner(
    model: GPT2LMHeadModel,
    slots: int,
    max_context: int | None = None,
    dtype: torch.dtype = torch.bfloat16,
    graphs: bool = True,
) -> TorchRunner:
    """Move the model to the GPU in `dtype` and return its runner (prompts in one piece)."""
    for block in model.transformer.h:
        block.mlp.act = torch.nn.GELU(approximate="tanh")
    moved = model.to(device="cuda", dtype=dtype)
    runner = TorchRunner(moved, slots, max_context, prefill_chunk=1 << 20)
    if graphs:
        runner.use_kernel(GraphStep(runner))
    return runner


def choose_device(wanted: str) -> torch.device:
    """Return the device for `auto`, `cpu` or `cuda`."""
    available = torch.cuda.is_available()
    if wanted == "cuda" and not available:
        raise ModelError("--device cuda needs a CUDA GPU that torch can see; there is none")
    return torch.device("cuda" if available and wanted != "cpu" else "cpu")
