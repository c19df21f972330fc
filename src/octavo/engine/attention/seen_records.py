"""`SeenRecords`: the records that a layer's attention sees beside the tokens of its window."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from octavo.engine.attention.selection import Selection, causal_mask
from octavo.engine.cache import RecordReads, Records

Seen = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""What queries see: keys and values (sequences, heads, tokens, size), and a mask to be added to scores. None is plain
causal."""


class JoinedByModel:
    """What a model joins as if it were tensors: the context of a window, and the records behind it."""

    __slots__ = ()

    @classmethod
    def __torch_function__(cls, function: object, _types: object, args: Any, _kwargs: object = None) -> Any:
        assert function is torch.cat, f"a model calls {function} with what stands for keys and values"
        context, records = args[0]
        return replace(context, records=records)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRecords(JoinedByModel):
    """A record is key and value at once. Queries see those of the pools that ended up to them, or among these what an
    indexer has chosen."""

    records: Records
    selection: Selection | None = None

    def join_single(self, index: int, seen: Seen) -> Seen:
        """What a read of single tokens brings, with its records behind it."""
        chosen = None if self.selection is None else self.selection.singles[index]
        return self._join(self.records.step.singles[index], chosen, seen)

    def join_tile(self, index: int, seen: Seen) -> Seen:
        """The same of a tile."""
        chosen = None if self.selection is None else self.selection.tiles[index]
        return self._join(self.records.step.tiles[index], chosen, seen)

    def _join(self, reads: RecordReads | None, chosen: torch.Tensor | None, seen: Seen) -> Seen:
        if reads is None:
            return seen
        keys, values, mask = seen
        records = self.records.read(reads)[:, None]
        if mask is None:
            mask = causal_mask(keys.new_empty(1, 1, keys.shape[2], keys.shape[2])).expand(1, 1, -1, -1)
        of_records = reads.mask if chosen is None else _mask_of(chosen, reads)
        return torch.cat([keys, records], 2), torch.cat([values, records], 2), torch.cat([mask, of_records], -1)


def _mask_of(chosen: torch.Tensor, reads: RecordReads) -> torch.Tensor:
    """Of what was chosen (sequences, queries, chosen), where -1 stands for nothing."""
    num_records = reads.mask.shape[-1]
    hidden = reads.mask.new_full((*chosen.shape[:2], num_records + 1), -torch.inf)
    return hidden.scatter_(-1, chosen.where(chosen >= 0, num_records), 0.0)[:, None, :, :num_records]
