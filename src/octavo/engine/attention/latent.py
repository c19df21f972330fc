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
from octavo.engine.cache import LatentPages, SingleReads, TileReads


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
    pages = context.pages
    assert isinstance(pages, LatentPages)
    outputs = [_absorbed(queries, pages, single, weights, rule) for single in context.step.singles]
    for tile in context.step.tiles:
        keys, values = weights.expand(*_latents(pages, context, tile))
        outputs.append(attend(queries[:, :, tile.tokens], keys, values, tile.mask, rule).transpose(1, 2))
    return join_outputs(outputs)


def _absorbed(
    queries: torch.Tensor, pages: LatentPages, single: SingleReads, weights: LatentWeights, rule: ScoreRule
) -> torch.Tensor:
    _, key_size, rank = weights.keys.shape
    by_head = queries[0, :, single.tokens]
    in_latent_space = by_head[..., :key_size] @ weights.keys
    single_queries = torch.cat((in_latent_space, by_head[..., key_size:]), -1).transpose(0, 1)[:, :, None]
    latents = pages.gather(single.rows, single.num_sequences)
    # The latents, with the rotated keys, are the values too: fused kernels want values as long as keys.
    output = attend(single_queries, latents, latents, single.mask, rule)[:, :, 0, :rank]
    return (output.transpose(0, 1) @ weights.values.transpose(1, 2)).transpose(0, 1)[None]


def _latents(pages: LatentPages, context: LayerContext, tile: TileReads) -> tuple[torch.Tensor, torch.Tensor]:
    """The latents and rotated keys that a tile sees."""
    if tile.rows is None:
        return context.keys[:, :, tile.tokens], context.values[:, :, tile.tokens]
    stored = pages.gather(tile.rows, 1)[:, :, : tile.num_context_tokens]
    rank = context.keys.shape[-1]
    return stored[..., :rank], stored[..., rank:]
