"""Runs the indexers of sparse models over a packed row, each part with the keys that it sees.

An indexer takes its input for sequences with one context each, and a mask that its attention would have made. One that
scores pools of tokens takes what it keeps of all tokens, and makes the keys of all pools anew; here it gets the keys
that were made before.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad
from transformers import PreTrainedModel

from octavo.engine.attention import Selection
from octavo.engine.cache import IndexPart, MakeKeys, PooledReads
from octavo.engine.models.equal_scores import ChoosingAlone
from octavo.engine.models.head_indexers import HeadChooser, PlainMask, is_over_heads, rotated_size
from octavo.engine.models.step_cache import StepCache

_MASK = "attention_mask"
_MAKE_POOLS = "get_pooled_states"
_NO_MASK = torch.empty(1, 1, 0, 0)
"""For an attention that hands a part of its mask to its indexer; nobody reads it."""


def run_indexers_by_part(model: nn.Module) -> set[int]:
    """Wraps all indexers of the model; returns the indices of their layers."""
    attentions: list[Any] = [module for module in model.modules() if _hands_mask_to_indexer(module)]
    for attention in attentions:
        mask = PlainMask() if is_over_heads(attention.indexer) else _NO_MASK
        attention.register_forward_pre_hook(_give(mask), with_kwargs=True)
    indexers: list[Any] = [module for module in model.modules() if _keeps_keys(module)]
    for indexer in indexers:
        indexer.forward = _by_part(indexer)
    return {indexer.layer_idx for indexer in indexers}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShape:
    """What an indexer keeps that scores pools of tokens."""

    num_tokens: int
    key_size: int
    open_size: int
    """What is kept of each token until its pool is closed."""


def choosing_layers(model: nn.Module) -> set[int]:
    """Those whose indexer chooses for attention over heads, and not over latents."""
    indexers: list[Any] = [module for module in model.modules() if is_over_heads(module)]
    return {indexer.layer_idx for indexer in indexers}


def pool_shapes(model: PreTrainedModel) -> dict[int, PoolShape]:
    """By layer with an indexer that scores pools."""
    indexers: list[Any] = [module for module in model.modules() if _keeps_keys(module)]
    found = {indexer.layer_idx: _find_pool_shape(indexer, model) for indexer in indexers}
    return {layer: shape for layer, shape in found.items() if shape is not None}


def _find_pool_shape(indexer: Any, model: PreTrainedModel) -> PoolShape | None:
    if is_over_heads(indexer):
        size, num_rotated = int(indexer.index_head_dim), rotated_size(model)
        return PoolShape(num_tokens=indexer.compress_ratio, key_size=size, open_size=size + 2 * num_rotated)
    if _scores_pools(indexer):
        size = int(indexer.head_dim)  # of a key, and of its gates
        return PoolShape(num_tokens=indexer.index_kpool, key_size=size, open_size=2 * size)
    return None


def _hands_mask_to_indexer(module: nn.Module) -> bool:
    return hasattr(module, "indexer") and _MASK in inspect.signature(type(module).forward).parameters


def _keeps_keys(module: nn.Module) -> bool:
    return "update_indexer" in inspect.unwrap(type(module).forward).__code__.co_names


def _scores_pools(module: nn.Module) -> bool:
    return hasattr(module, _MAKE_POOLS)


def _give(mask: object) -> Callable[..., tuple[Any, dict[str, Any]]]:
    return lambda _, args, kwargs: (args, {**kwargs, _MASK: mask})


def _chooser_of(indexer: Any) -> "_Chooser | HeadChooser":
    if is_over_heads(indexer):
        return HeadChooser(indexer)
    return _PoolChooser(indexer) if _scores_pools(indexer) else _Chooser(indexer)


def _by_part(indexer: Any) -> Callable[..., Selection]:
    signature = inspect.signature(indexer.forward)
    choose = _chooser_of(indexer)

    def run(*args: Any, **kwargs: Any) -> Selection:
        given = signature.bind(*args, **kwargs).arguments
        reads = StepCache.among(given.values()).index_reads(indexer.layer_idx)

        def run_read(parts: Sequence[IndexPart]) -> torch.Tensor | None:
            chosen = []
            for part in parts:
                reads.begin(part)
                chosen.append(choose(part, given))
            return None if parts[-1].mask.shape[-1] <= choose.most else _join(chosen)

        return Selection(
            singles=[run_read([part]) for part in reads.singles()],
            tiles=[run_read(parts) for parts in reads.tiles(choose.num_heads)],
        )

    return run


def _join(chosen: list[torch.Tensor]) -> torch.Tensor:
    """Earlier parts of a read may see fewer tokens than a query chooses: then all, the first among them."""
    most = chosen[-1].shape[-1]
    return torch.cat([pad(one, (0, most - one.shape[-1])) for one in chosen], 1)


class _Chooser:
    """Calls an indexer for one part."""

    def __init__(self, indexer: Any) -> None:
        self.num_heads: int = indexer.n_heads
        self.most: int = indexer.index_topk
        """A query that sees no more tokens chooses all."""
        self._forward = indexer.forward

    def __call__(self, part: IndexPart, given: Mapping[str, Any]) -> torch.Tensor:
        """(sequences, queries, chosen)"""
        arguments = self._arguments(part, given)
        with ChoosingAlone():
            chosen: torch.Tensor = self._forward(**arguments)
        return chosen.long()

    def _arguments(self, part: IndexPart, given: Mapping[str, Any]) -> dict[str, Any]:
        return {**{name: part.cut(value) for name, value in given.items() if name != _MASK}, _MASK: part.mask}


class _PoolChooser(_Chooser):
    """The same for an indexer that scores pools. Its mask says which of a part's tokens are no padding: all."""

    def __init__(self, indexer: Any) -> None:
        super().__init__(indexer)
        self._layer_idx, self._pool = indexer.layer_idx, int(indexer.index_kpool)
        self._make_pools, indexer.get_pooled_states = indexer.get_pooled_states, self._pools
        self._cache: _PoolCache | None = None

    def __call__(self, part: IndexPart, given: Mapping[str, Any]) -> torch.Tensor:
        chosen = super().__call__(part, given)
        # Where fewer tokens are chosen, the last of them fills their places.
        return chosen.where(chosen >= 0, chosen.amax(-1, keepdim=True))

    def _arguments(self, part: IndexPart, given: Mapping[str, Any]) -> dict[str, Any]:
        reads = StepCache.among(given.values()).index_reads(self._layer_idx)
        assert isinstance(reads, PooledReads)
        self._cache = _PoolCache(self._layer_idx, reads, self._make_keys, is_seen=part.mask[:, -1] == 0)
        own = {
            name: self._cache if isinstance(value, StepCache) else value
            for name, value in super()._arguments(part, given).items()
        }
        return {**own, _MASK: torch.ones(part.mask.shape[:2], dtype=torch.bool, device=part.mask.device)}

    def _make_keys(self, vectors: torch.Tensor) -> torch.Tensor:
        """Of each pool alone: vectors (pools, tokens of a pool, size) to keys (pools, size)."""
        keys: torch.Tensor = self._make_pools(pad(vectors, (0, 1), value=1.0))[0]
        return keys[:, 0]

    def _pools(self, packed_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The keys of all pools, their tokens, and whether they are closed."""
        cache = self._cache
        assert cache is not None
        is_closed = packed_states[:, self._pool - 1 :: self._pool, 0].bool()
        tokens = torch.arange(is_closed.shape[1] * self._pool, device=is_closed.device)
        return cache.pools, tokens.view(1, -1, self._pool).expand(len(is_closed), -1, -1), is_closed


class _PoolCache:
    """What an indexer of pools takes for its cache while it computes one part."""

    def __init__(self, layer_idx: int, reads: PooledReads, make_keys: MakeKeys, *, is_seen: torch.Tensor) -> None:
        """`is_seen`: (sequences, tokens read), whether the last query sees the token."""
        self.layers = {layer_idx: self}
        self.keys = is_seen[..., None]
        """Only its length is asked for."""
        self.pools = torch.empty(0)
        self._reads, self._make_keys = reads, make_keys

    def get_seq_length(self) -> int:
        return self.keys.shape[-2]

    def update_indexer(self, packed_states: torch.Tensor, _layer_idx: int) -> torch.Tensor:
        """Takes what is known of the part's tokens. Returns only whether each token is seen, which comes last."""
        self.pools = self._reads.exchange_pools(packed_states[..., :-1], self._make_keys)
        return self.keys
