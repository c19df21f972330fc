"""Latent attention (MLA) of a packed row over pages of latents.

A key of head h is (K_h c, r) for a latent c and a rotated key r, its value is V_h c. Two ways to the same output:

    expand      make keys and values of all heads from the latents: best for many queries over one context
    absorb      bring the queries to the latents instead, q K_h, and the outputs from there, V_h o: then all heads
                share one "key" (c, r), which is read as it lies in the pages. Best for one query each
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from octavo.engine.attention.context import LayerContext
from octavo.engine.attention.kernels import ScoreRule, attend
from octavo.engine.attention.paged import join_outputs
from octavo.engine.attention.selection import hide_others
from octavo.engine.cache import LatentPages, TileReads


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentWeights:
    """The projections of one layer from latents to heads."""

    keys: torch.Tensor
    """(heads, size of a key without its rotated part, rank)"""
    values: torch.Tensor
    """(heads, size of a value, rank)"""
    expand: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
    """Latents and rotated keys (1, 1, tokens, size) to keys and values (1, heads, tokens, size)."""


def attend_latents(
    queries: torch.Tensor, context: LayerContext, weights: LatentWeights, rule: ScoreRule
) -> torch.Tensor:
    """Queries (1, heads, tokens, size) of the packed row; returns (1, tokens, heads, size of a value)."""
    pages, selection = context.pages, context.selection
    assert isinstance(pages, LatentPages)
    outputs = []
    for index, single in enumerate(context.step.singles):
        latents = pages.gather(single.rows, single.num_sequences)
        mask = single.mask if selection is None else hide_others(selection.singles[index], single.mask, latents)
        outputs.append(_absorbed(queries[0, :, single.tokens], latents, mask, weights, rule))
    for index, tile in enumerate(context.step.tiles):
        keys, values = weights.expand(*_latents(pages, context, tile))
        mask = tile.mask if selection is None else hide_others(selection.tiles[index], tile.mask, keys)
        outputs.append(attend(queries[:, :, tile.tokens], keys, values, mask, rule).transpose(1, 2))
    return join_outputs(outputs)


def _absorbed(
    by_head: torch.Tensor, latents: torch.Tensor, mask: torch.Tensor | None, weights: LatentWeights, rule: ScoreRule
) -> torch.Tensor:
    """Queries (heads, sequences, size), one for each sequence."""
    _, key_size, rank = weights.keys.shape
    in_latent_space = by_head[..., :key_size] @ weights.keys
    single_queries = torch.cat((in_latent_space, by_head[..., key_size:]), -1).transpose(0, 1)[:, :, None]
    # The latents, with the rotated keys, are the values too: fused kernels want values as long as keys.
    output = attend(single_queries, latents, latents, mask, rule)[:, :, 0, :rank]
    return (output.transpose(0, 1) @ weights.values.transpose(1, 2)).transpose(0, 1)[None]


def _latents(pages: LatentPages, context: LayerContext, tile: TileReads) -> tuple[torch.Tensor, torch.Tensor]:
    """The latents and rotated keys that a tile sees."""
    if tile.rows is None:
        return context.keys[:, :, tile.tokens], context.values[:, :, tile.tokens]
    stored = pages.gather(tile.rows, 1)[:, :, : tile.num_context_tokens]
    rank = context.keys.shape[-1]
    return stored[..., :rank], stored[..., rank:]
