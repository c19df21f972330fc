"""`RecordPages`: all records that a model keeps, where they lie, and the steps over them."""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from octavo.engine.cache.attention_step import AttentionStep
from octavo.engine.cache.layer_pages import IndexPages, OpenPages
from octavo.engine.cache.packing import PackedRow
from octavo.engine.cache.pages import DevicePages
from octavo.engine.cache.record_step import RecordStepPlanner
from octavo.engine.cache.records import Records
from octavo.ids import GroupIdx
from octavo.specs import AttentionSpec, KVCacheSpec, MLAAttentionSpec

Place = tuple[GroupIdx, int, KVCacheSpec]
"""A layer's group, its bytes' start in each page of the group, and its spec."""


class _Kind(NamedTuple):
    """What layers share whose records have the same steps."""

    group_idx: GroupIdx
    open_group_idx: GroupIdx
    tokens_per_record: int
    window_group_idx: GroupIdx


class RecordPages:
    """The records of all layers, by the names that their compressors use."""

    def __init__(self, pages: DevicePages, dtype: torch.dtype, device: torch.device) -> None:
        """`dtype`: that of masks."""
        self._pages, self._dtype, self._device = pages, dtype, device
        self._planners: dict[_Kind, RecordStepPlanner] = {}
        self._layers: dict[int, dict[str, tuple[_Kind, IndexPages, OpenPages]]] = {}

    def add(self, layer: int, name: str, place: Place, open_place: Place, window_group_idx: GroupIdx) -> None:
        """`window_group_idx`: that of the tokens which the same attention sees uncompressed."""
        (group_idx, offset, spec), (open_group_idx, open_offset, open_spec) = place, open_place
        assert isinstance(spec, MLAAttentionSpec)
        assert isinstance(open_spec, AttentionSpec)
        kind = _Kind(group_idx, open_group_idx, spec.tokens_per_state, window_group_idx)
        if kind not in self._planners:
            places = (group_idx, spec), (open_group_idx, open_spec)
            self._planners[kind] = RecordStepPlanner(*places, self._dtype, self._device)
        self._layers.setdefault(layer, {})[name] = (
            kind,
            IndexPages(self._pages, group_idx, offset, spec),
            OpenPages(self._pages, open_group_idx, open_offset, open_spec),
        )

    def begin_step(
        self, row: PackedRow, attention: Mapping[GroupIdx, AttentionStep]
    ) -> dict[int, Mapping[str, Records]]:
        """The records of a step by layer and name. Pages that it begins are cleared."""
        steps = {kind: planner.plan(row, attention[kind.window_group_idx]) for kind, planner in self._planners.items()}
        for kind, step in steps.items():
            self._pages.clear(kind.group_idx, step.new_rows)
        return {
            layer: {name: Records(pages, open_pages, steps[kind]) for name, (kind, pages, open_pages) in kept.items()}
            for layer, kept in self._layers.items()
        }
