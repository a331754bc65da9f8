"""CUDA graphs: a decode step as one launch, for each batch size and context window.

An eager step of GPT-2 is a few hundred kernel launches from Python and so bound by the host; a
captured one replays them without the host. Shapes inside a graph are fixed: one graph per number of
rows and per window of the cache, all in one memory pool.
"""

from __future__ import annotations

from typing import Final

import torch

from punctual_model_server.engine.torch_runner import TorchRunner, decode

_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_WINDOWS: Final = (128, 256, 512, 1024)
_WARM_UP_STEPS: Final = 3


class GraphStep:
    """Replays the captured step for the asked number of rows and the smallest window that fits."""

    def __init__(self, runner: TorchRunner) -> None:
        slots, context = runner.shape.slots, runner.shape.max_context
        self._runner = runner
        self.sizes = (*(s for s in _SIZES if s < slots), slots)
        self.windows = (*(w for w in _WINDOWS if w < context), context)
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}
        self._outputs: dict[tuple[int, int], tuple[torch.Tensor, torch.Tensor]] = {}
        self._capture_all()

    def __call__(self, rows: int, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Run `rows` rows (one of `sizes`)."""
        window = next(w for w in self.windows if w >= longest)
        self._graphs[rows, window].replay()
        return self._outputs[rows, window]

    @torch.inference_mode()
    def _capture_all(self) -> None:
        """Capture from the largest shape down, so that the pool is sized once."""
        pool = torch.cuda.graph_pool_handle()
        for rows in reversed(self.sizes):
            for window in reversed(self.windows):
                self._runner.store.window = window
                self._warm_up(rows)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool):
                    output = decode(self._runner, rows)
                self._graphs[rows, window] = graph
                self._outputs[rows, window] = output
        self._runner.store.position.zero_()
        torch.cuda.synchronize()

    def _warm_up(self, rows: int) -> None:
        """Let libraries choose kernels outside the capture, on a side stream as torch asks."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_STEPS):
                decode(self._runner, rows)
        torch.cuda.current_stream().wait_stream(side)
