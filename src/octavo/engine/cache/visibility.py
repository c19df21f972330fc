"""Which positions a query sees: a spec's resume rule, token by token."""

from math import inf

import numpy as np
import numpy.typing as npt
import torch

from octavo.specs import ChunkedLocalAttentionSpec, KVCacheSpec, SlidingWindowSpec

Positions = npt.NDArray[np.int64]


def first_visible(spec: KVCacheSpec, queries: Positions) -> Positions:
    """The first position that each query sees. It sees all from there to itself."""
    match spec:
        case SlidingWindowSpec():  # the window counts the query's own token
            return np.maximum(queries - (spec.sliding_window - 1), 0)
        case ChunkedLocalAttentionSpec():
            return queries // spec.attention_chunk_size * spec.attention_chunk_size
        case _:
            return np.zeros_like(queries)


def visibility_mask(spec: KVCacheSpec, queries: Positions, keys: Positions, dtype: torch.dtype) -> torch.Tensor:
    """(queries, keys) to be added to scores: zero where a query sees a key, minus infinity elsewhere.

    `keys` are positions: one row for all queries, or one for each.
    """
    is_hidden = (keys < first_visible(spec, queries)[:, None]) | (keys > queries[:, None])
    return torch.zeros(is_hidden.shape, dtype=dtype, device="cpu").masked_fill_(torch.from_numpy(is_hidden), -inf)
