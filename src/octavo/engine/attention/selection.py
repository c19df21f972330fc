"""`Selection`: the tokens that an indexer has chosen for each query of a step."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The chosen tokens, as places among those that a read brings: (sequences, queries, chosen) for each read of the
    step, in its order. A model carries it from its indexer to its attention, and to the layers that share it."""

    singles: list[torch.Tensor]
    tiles: list[torch.Tensor]


def hide_others(chosen: torch.Tensor, mask: torch.Tensor | None, keys: torch.Tensor) -> torch.Tensor | None:
    """A read's mask, with what was not chosen hidden too. `keys` are what it brings: (sequences, heads, tokens, size).
    None is plain causal."""
    num_tokens = keys.shape[2]
    if chosen.shape[-1] == num_tokens:
        return mask
    hidden = keys.new_full((*chosen.shape[:2], num_tokens), -torch.inf)
    seen = hidden.scatter_(-1, chosen, 0.0)[:, None]
    return seen + (causal_mask(seen) if mask is None else mask)


def causal_mask(scores: torch.Tensor) -> torch.Tensor:
    """To be added to scores (..., queries, keys) of as many keys as queries: none sees a later one."""
    return scores.new_full(scores.shape[-2:], -torch.inf).triu_(1)
