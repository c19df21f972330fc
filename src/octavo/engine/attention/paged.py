"""Attention of a packed row over pages of keys and values."""

import torch

from octavo.engine.attention.context import LayerContext
from octavo.engine.attention.kernels import ScoreRule, attend
from octavo.engine.attention.seen_records import Seen
from octavo.engine.attention.selection import hide_others
from octavo.engine.cache import AttentionPages, TileReads


def attend_pages(queries: torch.Tensor, context: LayerContext, rule: ScoreRule) -> torch.Tensor:
    """Queries (1, heads, tokens, size) of the packed row; returns (1, tokens, heads, size of a value)."""
    pages, step, selection, records = context.pages, context.step, context.selection, context.records
    assert isinstance(pages, AttentionPages)
    outputs = []
    for index, single in enumerate(step.singles):
        keys, values = pages.gather(single.rows, single.num_sequences)
        mask = single.mask if selection is None else hide_others(selection.singles[index], single.mask, keys)
        seen: Seen = keys, values, mask
        seen = seen if records is None else records.join_single(index, seen)
        single_queries = queries[0, :, single.tokens].transpose(0, 1)[:, :, None]
        outputs.append(attend(single_queries, *seen, rule)[None, :, :, 0])
    for index, tile in enumerate(step.tiles):
        keys, values = _keys_and_values(pages, context, tile)
        mask = tile.mask if selection is None else hide_others(selection.tiles[index], tile.mask, keys)
        seen = keys, values, mask
        seen = seen if records is None else records.join_tile(index, seen)
        outputs.append(attend(queries[:, :, tile.tokens], *seen, rule).transpose(1, 2))
    return join_outputs(outputs)


def join_outputs(outputs: list[torch.Tensor]) -> torch.Tensor:
    """Joins the outputs to the packed row (1, tokens, heads, size)."""
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)).contiguous()


def _keys_and_values(
    pages: AttentionPages, context: LayerContext, tile: TileReads
) -> tuple[torch.Tensor, torch.Tensor]:
    if tile.rows is None:
        return context.keys[:, :, tile.tokens], context.values[:, :, tile.tokens]
    keys, values = pages.gather(tile.rows, 1)
    return keys[:, :, : tile.num_context_tokens], values[:, :, : tile.num_context_tokens]
