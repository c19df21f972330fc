"""Runs the compressors of a model over a packed row. A compressor makes one record of several tokens, for attention or
for an indexer, which then chooses among attention's records.

Hugging Face's take their input for sequences of one length, whose records are made at the same tokens. Here a
compressor is called once for the whole row, as if it were one sequence: it gets all pools that the row closes, one
after the other, with the position of each. An indexer is called again for one part of the row after the other, to
choose.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from octavo.engine.attention import SeenRecords, Selection
from octavo.engine.cache import RecordReads, Records, cut_row, most_queries
from octavo.engine.models.equal_scores import ChoosingAlone
from octavo.engine.models.step_cache import StepCache

_OPEN = "store_compression_weights"
_COMPRESSOR, _INDEXER = "compressor", "indexer"


def run_compressors_by_row(model: nn.Module) -> set[int]:
    """Wraps all compressors of the model; returns the indices of their layers."""
    attentions: list[Any] = [module for module in model.modules() if _makes_records(getattr(module, _COMPRESSOR, None))]
    for attention in attentions:
        compressor = attention.compressor
        if hasattr(compressor, _INDEXER):
            compressor.indexer.forward = _choose_by_part(compressor.indexer)
        compressor.forward = _by_row(compressor)
    return {attention.layer_idx for attention in attentions}


def _makes_records(module: object) -> bool:
    return isinstance(module, nn.Module) and _OPEN in inspect.unwrap(type(module).forward).__code__.co_names


def _by_row(compressor: Any) -> Callable[..., tuple[SeenRecords, None]]:
    forward, signature = compressor.forward, inspect.signature(compressor.forward)

    def run(*args: Any, **kwargs: Any) -> tuple[SeenRecords, None]:
        given = signature.bind(*args, **kwargs).arguments
        layer_idx = given["layer_idx"]
        row = _RowCache(layer_idx, StepCache.among(given.values()).records(layer_idx))
        forward(**{name: row if isinstance(value, StepCache) else value for name, value in given.items()})
        return SeenRecords(records=row.records[_COMPRESSOR], selection=row.selection), None

    return run


class _RowCache:
    """What a compressor takes for its cache, and for its layer there, while it computes a packed row."""

    def __init__(self, layer_idx: int, records: Mapping[str, Records]) -> None:
        self.layers = {layer_idx: self}
        self.records = records
        self.selection: Selection | None = None

    def store_compression_weights(
        self, name: str, kv: torch.Tensor, gate: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns the tokens of all pools that are to be made. The compressor takes the third for the position of the
        first of them, and counts on from it."""
        records = self.records[name]
        vectors, gates = records.exchange_open(kv[0], gate[0])
        return vectors[None], gates[None], records.step.shifts

    def update_overlap_state(self, *_args: object) -> tuple[None, None]:
        """What a row's first pool overlaps is among the tokens that were handed out."""
        return None, None

    def update_compressor_states(self, name: str, compressed: torch.Tensor) -> torch.Tensor:
        """Returns no records: each query is to see its own."""
        self.records[name].keep(compressed[0])
        return compressed[:, :0]


class _PartCache:
    """What an indexer takes for its cache while it chooses for a part of a row: it makes nothing, and reads these."""

    def __init__(self, layer_idx: int, keys: torch.Tensor) -> None:
        """`keys`: (sequences, records, size)"""
        self.layers = {layer_idx: self}
        self._keys = keys

    def store_compression_weights(
        self, _name: str, kv: torch.Tensor, gate: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        return kv[:, :0], gate[:, :0], 0

    def update_compressor_states(self, _name: str, _compressed: torch.Tensor) -> torch.Tensor:
        return self._keys


def _choose_by_part(indexer: Any) -> Callable[..., torch.Tensor]:
    forward, signature = indexer.forward, inspect.signature(indexer.forward)

    def choose(reads: RecordReads | None, row: _RowCache, given: Mapping[str, Any]) -> torch.Tensor | None:
        """(sequences, queries, chosen), or None where all are."""
        if reads is None or reads.mask.shape[-1] <= indexer.index_topk:
            return None
        keys = row.records[_INDEXER].read(reads)
        part_cache = _PartCache(given["layer_idx"], keys)
        chosen = []
        for tokens in _parts(reads, most_queries(indexer.num_heads, keys.shape[1])):
            own = {name: cut_row(value, tokens, reads.num_sequences) for name, value in given.items()}
            with ChoosingAlone():
                chosen.append(forward(**{n: part_cache if value is row else value for n, value in own.items()}))
        return torch.cat(chosen, 1)

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        given = signature.bind(*args, **kwargs).arguments
        row = next(value for value in given.values() if isinstance(value, _RowCache))
        nothing: torch.Tensor = forward(**given)
        step = row.records[_INDEXER].step
        row.selection = Selection(
            singles=[choose(reads, row, given) for reads in step.singles],
            tiles=[choose(reads, row, given) for reads in step.tiles],
        )
        return nothing

    return run


def _parts(reads: RecordReads, most: int) -> Iterator[slice]:
    """The tokens of a read: those of several sequences at once, and those of one in runs."""
    if reads.num_sequences > 1:
        yield reads.tokens
        return
    for start in range(reads.tokens.start, reads.tokens.stop, most):
        yield slice(start, min(start + most, reads.tokens.stop))
