"""Runs GPT-2 with torch: eager on the CPU, CUDA graphs on a GPU, one interface.

A step of B requests may run with idle rows (a GPU graph exists for some sizes only; on a CPU some
sizes are slower than larger ones). `rows_for[B]` says with how many; calibration sets it to the
size that is fastest for B, which also makes T(B) non-decreasing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Protocol

import torch
from transformers import GPT2LMHeadModel

from punctual_model_server.engine.models import Architecture
from punctual_model_server.engine.runner import Draw, Shape
from punctual_model_server.engine.sampling import pick
from punctual_model_server.engine.slots import Slots, SlotStore

_EAGER_WINDOW = 64
_CACHE_ARGUMENT = (
    "cache"
    if "cache" in inspect.signature(GPT2LMHeadModel.forward).parameters
    else "past_key_values"  # transformers before 5.20
)


class StepKernel(Protocol):
    """One decode step: logits `[rows, vocabulary]` and greedy tokens `[rows]`."""

    sizes: tuple[int, ...]

    def __call__(self, rows: int, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Run `rows` rows whose longest context after this step is `longest` positions."""
        ...


class TorchRunner:
    """Slots over one model. See `Runner` for the interface."""

    def __init__(
        self,
        model: GPT2LMHeadModel,
        slots: int,
        max_context: int | None = None,
        prefill_chunk: int = 128,
    ) -> None:
        config = model.config
        self.model = model
        self.device = next(model.parameters()).device
        self.dtype = next(model.parameters()).dtype
        context = min(max_context or config.n_positions, config.n_positions)
        architecture = Architecture(
            config.n_layer, config.n_embd, config.n_head, config.vocab_size, config.n_positions
        )
        self.shape = Shape(
            slots=slots,
            max_context=context,
            vocabulary=config.vocab_size,
            eos=_end_token(config.eos_token_id),
            kv_bytes_per_token=architecture.kv_bytes_per_token(self.dtype.itemsize),
            device=str(self.device),
        )
        self.store = SlotStore(architecture, slots, context, self.device, self.dtype)
        self.cache = Slots(self.store, architecture.layers)
        self.tokens = torch.zeros((slots, 1), device=self.device, dtype=torch.long)
        self.lengths = [0] * slots
        self.draws = [Draw(0.0, 1.0, 0)] * slots
        self.use_kernel(EagerStep(self))
        self._chunk = prefill_chunk

    def use_kernel(self, kernel: StepKernel) -> None:
        """Take steps with `kernel`, each batch with the smallest of its sizes that holds it."""
        self.kernel = kernel
        self.rows_for = [0] + [
            min(size for size in kernel.sizes if size >= batch)
            for batch in range(1, self.shape.slots + 1)
        ]

    @torch.inference_mode()
    def prefill(
        self, row: int, prompt: list[int], draw: Draw, go_on: Callable[[], bool]
    ) -> int | None:
        """Read the prompt in chunks and pick the first token."""
        ids = torch.tensor([prompt], device=self.device)
        logits = None
        for start in range(0, len(prompt), self._chunk):
            if start and not go_on():
                return None
            logits = self._read(row, start, ids[:, start : start + self._chunk])
        assert logits is not None, "a prompt has at least one token"  # noqa: S101 - for mypy
        token = pick(logits, draw)
        self.lengths[row] = len(prompt)
        self.store.position[row] = len(prompt)
        self.tokens[row, 0] = token
        self.draws[row] = draw
        return token

    @torch.inference_mode()
    def step(self, active: int) -> list[int]:
        """Run one step over rows 0..active-1 and pick their tokens."""
        rows = self.rows_for[active]
        logits, greedy = self.kernel(rows, 1 + max(self.lengths[:active]))
        picked: list[int] = greedy[:active].tolist()
        for row in range(active):
            self.lengths[row] += 1
            if not self.draws[row].greedy:
                picked[row] = pick(logits[row], self.draws[row])
                self.tokens[row, 0] = picked[row]
        return picked

    @torch.inference_mode()
    def move(self, source: int, target: int) -> None:
        """Copy everything that belongs to a row."""
        self.store.move(source, target, self.lengths[source])
        self.tokens[target] = self.tokens[source]
        self.lengths[target] = self.lengths[source]
        self.draws[target] = self.draws[source]

    def forward(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        """Run the model over the slots and return the logits of each row's last token."""
        output = self.model(
            ids,
            use_cache=True,
            attention_mask=mask,
            position_ids=positions,
            logits_to_keep=1,
            **{_CACHE_ARGUMENT: self.cache},
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _read(self, row: int, start: int, ids: torch.Tensor) -> torch.Tensor:
        store = self.store
        store.prefilling, store.row, store.start = True, row, start
        length = ids.shape[1]
        mask = store.chunk_mask(length) if start else None
        logits = self.forward(ids, store.columns[None, start : start + length], mask)[0]
        store.prefilling = False
        return logits


class EagerStep:
    """A step as ordinary torch calls, over a window that ends just past the longest context."""

    def __init__(self, runner: TorchRunner) -> None:
        self._runner = runner
        self.sizes = batch_sizes(runner.shape.slots)

    def __call__(self, rows: int, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Run `rows` rows; idle ones compute a token that nobody reads."""
        runner = self._runner
        context = runner.shape.max_context
        runner.store.window = min(-(-longest // _EAGER_WINDOW) * _EAGER_WINDOW, context)
        return decode(runner, rows)


def decode(runner: TorchRunner, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Feed each row's last token, advance the positions, and leave the greedy token as the next."""
    store = runner.store
    position = store.position[:rows]
    logits = runner.forward(runner.tokens[:rows], position[:, None], store.mask(rows))
    greedy = logits.argmax(dim=-1)
    runner.tokens[:rows, 0] = greedy
    position.add_(1).clamp_(max=runner.shape.max_context - 1)
    return logits, greedy


def batch_sizes(slots: int) -> tuple[int, ...]:
    """Return the batch sizes worth having: all up to 8, then every fourth, then every sixteenth."""
    sizes = [*range(1, 9), *range(12, 33, 4), *range(48, slots, 16)]
    return (*(size for size in sizes if size < slots), slots)


def _end_token(value: int | list[int] | None) -> int:
    """Return the id that ends an answer, or -2 (never produced) where the model names none."""
    if isinstance(value, list):
        return value[0]
    return -2 if value is None else value
