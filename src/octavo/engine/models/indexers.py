"""Runs the indexers of sparse models over a packed row, each part with the keys that it sees.

An indexer takes its input for sequences with one context each, and a mask that its attention would have made.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import pad

from octavo.engine.attention import Selection
from octavo.engine.cache import IndexPart
from octavo.engine.models.step_cache import StepCache

_MASK = "attention_mask"
_NO_MASK = torch.empty(1, 1, 0, 0)
"""For an attention that hands a part of its mask to its indexer; nobody reads it."""


def run_indexers_by_part(model: nn.Module) -> set[int]:
    """Wraps all indexers of the model; returns the indices of their layers."""
    for module in model.modules():
        if hasattr(module, "indexer"):
            module.register_forward_pre_hook(_give_mask, with_kwargs=True)
    indexers: list[Any] = [module for module in model.modules() if _keeps_keys(module)]
    for indexer in indexers:
        indexer.forward = _by_part(indexer.forward, indexer.layer_idx, indexer.n_heads)
    return {indexer.layer_idx for indexer in indexers}


def _keeps_keys(module: nn.Module) -> bool:
    return "update_indexer" in inspect.unwrap(type(module).forward).__code__.co_names


def _give_mask(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return args, {**kwargs, _MASK: _NO_MASK}


def _by_part(forward: Callable[..., torch.Tensor], layer_idx: int, num_heads: int) -> Callable[..., Selection]:
    signature = inspect.signature(forward)

    def run(*args: Any, **kwargs: Any) -> Selection:
        given = signature.bind(*args, **kwargs).arguments
        reads = StepCache.among(given.values()).index_reads(layer_idx)

        def choose(part: IndexPart) -> torch.Tensor:
            reads.begin(part)
            own = {name: _of_part(value, part) for name, value in given.items() if name != _MASK}
            return forward(**own, **{_MASK: part.mask}).long()

        return Selection(
            singles=[choose(part) for part in reads.singles()],
            tiles=[_join([choose(part) for part in parts]) for parts in reads.tiles(num_heads)],
        )

    return run


def _of_part(value: Any, part: IndexPart) -> Any:
    """An argument (1, tokens of the packed row, ...) for one part: (sequences, queries, ...)."""
    if isinstance(value, tuple):
        return tuple([_of_part(one, part) for one in value])
    if not isinstance(value, torch.Tensor):
        return value
    return value[:, part.tokens].reshape(part.num_sequences, -1, *value.shape[2:])


def _join(chosen: list[torch.Tensor]) -> torch.Tensor:
    """Earlier parts of a tile may see fewer tokens than a query chooses: then all, the first among them."""
    most = chosen[-1].shape[-1]
    return torch.cat([pad(one, (0, most - one.shape[-1])) for one in chosen], 1)
