"""Attention of queries to keys, as dense tensors."""

from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from octavo.engine.attention.selection import causal_mask


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRule:
    """How scores become weights."""

    scale: float
    softcap: float | None = None
    sinks: torch.Tensor | None = None
    """(heads): a learned score per head that takes its share of the weights and adds nothing to the output."""


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, rule: ScoreRule
) -> torch.Tensor:
    """Outputs of queries (sequences, heads, tokens, size) over keys and values of as many heads or fewer.

    `mask` is added to the scores; without one it is plain causal: as many keys as queries, none sees a later one.
    """
    sequences, heads, tokens, _ = queries.shape
    if rule.softcap is not None or rule.sinks is not None:
        return _attend_by_hand(queries, keys, values, mask, rule)
    if tokens == 1 and heads != keys.shape[1]:
        # The heads that share keys become the queries of one head: twice as fast as letting torch group them.
        queries = queries.reshape(sequences, keys.shape[1], -1, queries.shape[-1])
    output = scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        scale=rule.scale,
        enable_gqa=queries.shape[1] != keys.shape[1],
    )
    return output.reshape(sequences, heads, tokens, -1)


def _attend_by_hand(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, rule: ScoreRule
) -> torch.Tensor:
    """Attention with score rules for which torch's fused attention has no argument."""
    sequences, heads, tokens, size = queries.shape
    grouped = (sequences, keys.shape[1], heads // keys.shape[1] * tokens)
    scores = queries.reshape(*grouped, size) @ keys.transpose(-1, -2) * rule.scale
    scores = scores.view(sequences, heads, tokens, -1)
    if rule.softcap is not None:
        scores = torch.tanh(scores / rule.softcap) * rule.softcap
    scores = scores + (causal_mask(scores) if mask is None else mask)
    if rule.sinks is not None:
        sinks = rule.sinks.view(1, heads, 1, 1).expand(sequences, heads, tokens, 1)
        scores = torch.cat((scores, sinks), -1)
    weights = scores.softmax(-1, dtype=torch.float32).to(values.dtype)[..., : keys.shape[2]]
    return (weights.reshape(*grouped, -1) @ values).view(sequences, heads, tokens, -1)
