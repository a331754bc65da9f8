"""Picking a token from logits."""

from __future__ import annotations

import torch

from punctual_model_server.engine.runner import Draw

_HEAD = 256


def pick(logits: torch.Tensor, draw: Draw) -> int:
    """Return one token from `logits` `[vocabulary]`.

    Temperature scales the logits; top-p keeps the fewest most likely tokens whose probabilities
    sum to at least `top_p`. One number from the request's own source picks by inverse distribution,
    so a seed gives the same answer whatever shares the batch.
    """
    if draw.greedy:
        return int(logits.argmax())
    probabilities = torch.softmax(logits.float() / draw.temperature, dim=-1)
    chance = draw.source.random()
    if draw.top_p >= 1.0:
        return _inverse(probabilities, chance)
    kept, tokens = _nucleus(probabilities, draw.top_p)
    return int(tokens[_inverse(kept, chance)])


def _nucleus(probabilities: torch.Tensor, top_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the probabilities and ids of the nucleus, most likely first.

    The head of the distribution nearly always holds the nucleus; sorting all of a 50,257-token
    vocabulary costs twenty times as much and is done only when it does not.
    """
    size = min(_HEAD, probabilities.shape[0])
    kept, tokens = torch.topk(probabilities, size)
    if float(kept.sum()) < top_p and size < probabilities.shape[0]:
        kept, tokens = torch.sort(probabilities, descending=True)
    before = torch.cumsum(kept, dim=0) - kept
    inside = before < top_p
    inside[0] = True
    return kept[inside], tokens[inside]


def _inverse(weights: torch.Tensor, chance: float) -> int:
    """Return the index at which the running sum of `weights` passes `chance` of the whole."""
    running = torch.cumsum(weights, dim=0, dtype=torch.float64)
    index = int(torch.searchsorted(running, running[-1:] * chance, right=True))
    return min(index, weights.shape[0] - 1)
