"""Indexers of attention over heads, as Qwen3.8 has them: one key for several tokens, which are a pool.

    key       the mean of the tokens' raw keys, normed, then rotated to the position of the first
    chosen    the best pools among those that are closed, and all tokens of the open one

Hugging Face makes all keys anew for each query, and scores one query after the other. Here its projections, norms and
rotation make each key once, and all queries of a part are scored together.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from octavo.engine.attention import Selection
from octavo.engine.cache import IndexPart, PooledReads
from octavo.engine.models.equal_scores import best_of_seen
from octavo.engine.models.step_cache import StepCache

_ROTATE = "apply_rotary_pos_emb"


class PlainMask:
    """Stands for the mask of all that a query sees, for an attention that combines it with an indexer's choice: the
    reads of a step have masks of their own."""

    dtype = torch.bool

    def __and__(self, chosen: Selection) -> Selection:
        return chosen


def is_over_heads(indexer: nn.Module) -> bool:
    return hasattr(indexer, "block_topk")


def rotated_size(model: PreTrainedModel) -> int:
    """How many numbers of a head are rotated: two for each frequency. The config does not tell: its share of a head may
    end within a pair, and some kinds of RoPE have frequencies of zero for the rest."""
    return 2 * len(model.get_decoder().rotary_emb.inv_freq)


class HeadChooser:
    """Chooses for one part what such an indexer would."""

    def __init__(self, indexer: Any) -> None:
        self.num_heads: int = indexer.index_n_heads
        self.most: int = indexer.token_budget + indexer.compress_ratio - 1
        """A query that sees no more tokens chooses all."""
        self._indexer = indexer
        self._pool, self._key_size = int(indexer.compress_ratio), int(indexer.index_head_dim)
        self._rotate: Callable[..., torch.Tensor] = inspect.unwrap(type(indexer).forward).__globals__[_ROTATE]

    def __call__(self, part: IndexPart, given: Mapping[str, Any]) -> torch.Tensor:
        """(sequences, queries, chosen)"""
        reads = StepCache.among(given.values()).index_reads(self._indexer.layer_idx)
        assert isinstance(reads, PooledReads)
        cos, sin = part.cut(given["position_embeddings"])
        projected = self._indexer.index_qk_proj(part.cut(given["hidden_states"])).unflatten(-1, (-1, self._key_size))
        queries, raw_keys = projected[..., : self.num_heads, :], projected[..., self.num_heads, :]
        queries = self._rotate(self._indexer.q_layernorm(queries), cos=cos, sin=sin, unsqueeze_dim=2)
        keys = reads.exchange_pools(torch.cat((raw_keys, cos, sin), -1), self._make_keys)
        return self._choose(self._scores(queries, keys), (part.mask == 0).sum(-1, keepdim=True))

    def _make_keys(self, vectors: torch.Tensor) -> torch.Tensor:
        """Vectors (pools, tokens of a pool, size) to keys (pools, size). A vector is a raw key, and its rotation."""
        raw_keys, first = vectors[..., : self._key_size], vectors[:, 0]
        cos, sin = first[:, self._key_size :].chunk(2, -1)
        means = raw_keys.float().mean(1).to(raw_keys.dtype)
        return self._rotate(self._indexer.k_layernorm(means)[:, None], cos=cos, sin=sin)[:, 0]

    def _scores(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Of queries (sequences, queries, heads, size) and keys (sequences, pools, size)."""
        by_head = queries.float() @ keys.float().transpose(-1, -2)[:, None]
        return by_head.relu().sum(2) / math.sqrt(self._key_size)

    def _choose(self, scores: torch.Tensor, num_seen: torch.Tensor) -> torch.Tensor:
        """Of scores (sequences, queries, pools), where each query sees that many tokens. Where fewer are chosen, the
        last of them fills their places."""
        num_closed, device = num_seen // self._pool, scores.device
        in_pool = torch.arange(self._pool, device=device)
        tokens = (self._best(scores, num_closed[..., 0])[..., None] * self._pool + in_pool).flatten(-2)
        tail = num_closed * self._pool + in_pool[:-1]
        chosen = torch.cat((tokens, tail.masked_fill(tail >= num_seen, -1)), -1)
        return chosen.where(chosen >= 0, chosen.amax(-1, keepdim=True))

    def _best(self, scores: torch.Tensor, num_closed: torch.Tensor) -> torch.Tensor:
        """The best closed pools (sequences, queries, most); -1 where there are fewer."""
        is_open = torch.arange(scores.shape[-1], device=scores.device) >= num_closed[..., None]
        most = min(self._indexer.block_topk, scores.shape[-1])
        _, best = best_of_seen(scores.masked_fill(is_open, -torch.inf), most)
        return best.masked_fill(best >= num_closed[..., None], -1)
