"""`Selection`: the tokens that an indexer has chosen for each query of a step."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The chosen tokens, as places among those that a read brings: (sequences, queries, chosen) for each read of the
    step, in its order; None if all are chosen. A model carries it from its indexer to its attention, and to the layers
    that share it."""

    singles: list[torch.Tensor | None]
    tiles: list[torch.Tensor | None]


def hide_others(chosen: torch.Tensor | None, mask: torch.Tensor | None, keys: torch.Tensor) -> torch.Tensor | None:
    """A read's mask, with what was not chosen hidden too. `keys` are what it brings: (sequences, heads, tokens, size).
    A mask of None is plain causal."""
    if chosen is None:
        return mask
    num_tokens = keys.shape[2]
    hidden = keys.new_full((*chosen.shape[:2], num_tokens), -torch.inf)
    seen = hidden.scatter_(-1, chosen, 0.0)[:, None]
    return seen + (causal_mask(seen) if mask is None else mask)


def causal_mask(scores: torch.Tensor) -> torch.Tensor:
    """To be added to scores (..., queries, keys) of as many keys as queries: none sees a later one."""
    return scores.new_full(scores.shape[-2:], -torch.inf).triu_(1)
