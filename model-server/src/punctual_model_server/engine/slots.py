"""Preallocated keys and values for a fixed number of rows, under an unmodified `GPT2LMHeadModel`.

One `Slots` object is the `cache` argument of every forward. In a prefill it reads and writes one
row from position `start`; in a step it writes each row's new key and value at that row's own
position and shows the attention the first `window` positions of all rows, with a mask that hides
what lies past each row's position. Shapes: keys and values are `[layers, slots, heads, context,
head width]`.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from punctual_model_server.engine.models import Architecture


class SlotStore:
    """The tensors, and where the present forward reads and writes them."""

    def __init__(
        self,
        architecture: Architecture,
        slots: int,
        context: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        shape = (
            architecture.layers,
            slots,
            architecture.heads,
            context,
            architecture.width // architecture.heads,
        )
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.rows = torch.arange(slots, device=device)
        self.position = torch.zeros(slots, device=device, dtype=torch.long)
        self.columns = torch.arange(context, device=device)
        self.prefilling = False
        self.row = 0
        self.start = 0
        self.window = context

    def mask(self, rows: int) -> torch.Tensor:
        """Return a step's boolean mask, `[rows, 1, 1, window]`: true up to the own position."""
        visible = self.columns[None, : self.window] <= self.position[:rows, None]
        return visible[:, None, None, :]

    def chunk_mask(self, length: int) -> torch.Tensor:
        """Return the causal mask of a later chunk of a prompt, `[1, 1, length, start + length]`."""
        end = self.start + length
        visible = self.columns[None, :end] <= self.columns[self.start : end, None]
        return visible[None, None]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of a row, and where it stands."""
        self.keys[:, target, :, :length] = self.keys[:, source, :, :length]
        self.values[:, target, :, :length] = self.values[:, source, :, :length]
        self.position[target] = self.position[source]


class SlotLayer(CacheLayerMixin):  # type: ignore[misc] # transformers is not typed here
    """One layer's view of the store, in the form transformers asks for."""

    is_sliding = False
    is_compileable = True
    is_croppable = False

    def __init__(self, store: SlotStore, layer: int) -> None:
        super().__init__()
        self.keys = store.keys[layer]
        self.values = store.values[layer]
        self.is_initialized = True
        self._store = store

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing to do: the store is there from the start."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: object, **__: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new keys and values and return those the attention sees."""
        store = self._store
        if store.prefilling:
            row, end = store.row, store.start + key_states.shape[2]
            self.keys[row, :, store.start : end] = key_states[0]
            self.values[row, :, store.start : end] = value_states[0]
            if store.start == 0:
                return key_states, value_states
            return self.keys[row : row + 1, :, :end], self.values[row : row + 1, :, :end]
        rows = key_states.shape[0]
        at = (store.rows[:rows], slice(None), store.position[:rows])
        self.keys[at] = key_states[:, :, 0]
        self.values[at] = value_states[:, :, 0]
        return self.keys[:rows, :, : store.window], self.values[:rows, :, : store.window]

    def get_seq_length(self) -> int:
        """Return 0: positions are always given explicitly."""
        return 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length and offset for masks that transformers builds (first chunk only)."""
        return query_length, 0

    def get_max_length(self) -> int:
        """Return how many positions a row holds."""
        return int(self._store.columns.shape[0])


class Slots(Cache):  # type: ignore[misc] # transformers is not typed here
    """The cache object for all layers of one store."""

    def __init__(self, store: SlotStore, layers: int) -> None:
        super().__init__(layers=[SlotLayer(store, i) for i in range(layers)])
