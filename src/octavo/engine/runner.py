"""`ModelRunner`: computes steps of a model over the pool of a plan. It decides nothing about what is scheduled.

A step:

    execute   the copies that the step's allocations ask for
    run       the new tokens of each sequence; their keys, values and states are in its pages after it
"""

from collections.abc import Iterable, Mapping

import torch

from octavo.blocks import Allocation
from octavo.engine.batch import StepBatch, StepLogits
from octavo.engine.cache import (
    AttentionPages,
    AttentionStep,
    AttentionStepPlanner,
    DevicePages,
    IndexPages,
    IndexReads,
    LatentPages,
    OpenPages,
    PackedRow,
    Place,
    PooledReads,
    RecordPages,
    SharedPages,
    StateKey,
    StatePages,
    StateStep,
    StateStepPlanner,
    pack,
)
from octavo.engine.models import CausalModel, ModelLayer
from octavo.engine.models.step_cache import LayerState, StepCache
from octavo.errors import PlanError
from octavo.ids import GroupIdx, enumerate_groups
from octavo.planning import KVCacheConfig
from octavo.specs import (
    AttentionSpec,
    CircularBufferSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
)


class ModelRunner:
    """One model on one device, and the pool that its cache lies in.

    The caller makes one call at a time. After a `run` that failed, the pages that its sequences were writing may hold
    anything: the caller must preempt those requests and commit nothing of the step.
    """

    def __init__(self, model: CausalModel, config: KVCacheConfig) -> None:
        """Allocates the pool. `config` is a plan for the model's own specs."""
        self.model = model
        self.config = config
        self.pages = DevicePages(config, model.device)
        self._attention: dict[int, tuple[GroupIdx, AttentionPages | LatentPages]] = {}
        """By layer: its group and its pages."""
        self._states: dict[int, tuple[GroupIdx, StatePages, ModelLayer]] = {}
        self._indexers: dict[int, tuple[GroupIdx, IndexPages]] = {}
        self._open: dict[int, tuple[GroupIdx, OpenPages]] = {}
        """By layer whose indexer makes one key of several tokens: where these wait for it."""
        self._records = RecordPages(self.pages, model.dtype, model.device)
        homes = {name: index for index, group in enumerate_groups(config.groups) for name in group.layer_names}
        for layer in model.layers:
            self._bind(layer, homes)
        self._attention_planners = {
            group_idx: AttentionStepPlanner(group_idx, config.groups[group_idx].spec.first, model.dtype, model.device)
            for group_idx, _ in (*self._attention.values(), *self._indexers.values())
        }
        self._state_planners = {
            group_idx: StateStepPlanner(group_idx, model.device) for group_idx, _, _ in self._states.values()
        }

    def execute(self, allocations: Iterable[Allocation]) -> None:
        """Makes the copies of a step's allocations, in the order in which they were made."""
        self.pages.execute(allocations)

    @torch.inference_mode()
    def run(self, batch: StepBatch) -> StepLogits:
        """Computes a step of at least one sequence. Its allocations must have been executed."""
        row = pack(batch)
        attention = {group_idx: planner.plan(row) for group_idx, planner in self._attention_planners.items()}
        states = {group_idx: planner.plan(row) for group_idx, planner in self._state_planners.items()}
        self._clear_new_pages({**attention, **states})
        token_ids, positions = row.token_ids.to(self.model.device), row.positions.to(self.model.device)
        tokens, parts = row.tokens_with_logits()
        logits = self.model.forward(token_ids, positions, self._step_cache(row, positions, attention, states), tokens)
        return StepLogits(
            last=logits[[part.stop - 1 for part in parts]],
            all_positions={
                index: logits[parts[index]]
                for index, sequence in enumerate(batch.sequences)
                if sequence.wants_all_logits
            },
        )

    # ---- helpers -------------------------------------------------------------------------------------------------

    def _bind(self, layer: ModelLayer, homes: Mapping[str, GroupIdx]) -> None:
        """Finds the layer's part of the pages."""
        if layer.attention is not None:
            group_idx, offset, spec = self._place(layer.attention_name, homes)
            assert isinstance(spec, AttentionSpec)
            if isinstance(spec, MLAAttentionSpec):
                self._attention[layer.index] = group_idx, LatentPages(self.pages, group_idx, offset, spec)
            elif isinstance(spec, SlidingWindowMLASpec):
                self._attention[layer.index] = group_idx, SharedPages(self.pages, group_idx, offset, spec)
            else:
                self._attention[layer.index] = group_idx, AttentionPages(self.pages, group_idx, offset, spec)
        if layer.indexer is not None:
            group_idx, offset, spec = self._place(layer.indexer_name, homes)
            assert isinstance(spec, MLAAttentionSpec)
            self._indexers[layer.index] = group_idx, IndexPages(self.pages, group_idx, offset, spec)
        if layer.indexer is not None and layer.indexer.open_size:
            group_idx, offset, spec = self._place(layer.open_name, homes)
            assert isinstance(spec, CircularBufferSpec)
            self._open[layer.index] = group_idx, OpenPages(self.pages, group_idx, offset, spec)
        if layer.states:
            group_idx, offset, spec = self._place(layer.state_name, homes)
            assert isinstance(spec, MambaSpec)
            self._states[layer.index] = group_idx, StatePages(self.pages, group_idx, offset, spec), layer
        for name in layer.records:
            of_records, of_open = (self._place(full, homes) for full in layer.names_of_records(name))
            self._records.add(layer.index, name, of_records, of_open, self._attention[layer.index][0])

    def _place(self, name: str, homes: Mapping[str, GroupIdx]) -> Place:
        if name not in homes:
            raise PlanError(f"the plan has no layer {name!r}; it was made for another model")
        group = self.config.groups[homes[name]]
        return homes[name], group.layer_offsets[name], group.spec.specs[name]

    def _clear_new_pages(self, steps: Mapping[GroupIdx, AttentionStep | StateStep]) -> None:
        for group_idx, step in steps.items():
            self.pages.clear(group_idx, step.new_rows)

    def _step_cache(
        self,
        row: PackedRow,
        positions: torch.Tensor,
        attention: Mapping[GroupIdx, AttentionStep],
        states: Mapping[GroupIdx, StateStep],
    ) -> StepCache:
        open_rows = {
            group_idx: torch.tensor(row.only_pages(group_idx), device=self.model.device)
            for group_idx in {group_idx for group_idx, _ in self._open.values()}
        }
        return StepCache(
            positions,
            {index: (pages, attention[group_idx]) for index, (group_idx, pages) in self._attention.items()},
            {
                index: LayerState(
                    pages=pages,
                    keys=tuple((state.name, state.index) for state in layer.states),
                    step=states[group_idx],
                    known=self._known(row, layer),
                )
                for index, (group_idx, pages, layer) in self._states.items()
            },
            {index: self._index_reads(index, attention, open_rows) for index in self._indexers},
            self._records.begin_step(row, attention),
        )

    def _known(self, row: PackedRow, layer: ModelLayer) -> Mapping[StateKey, torch.Tensor]:
        if layer.earlier is None:
            return {}
        tokens = row.earlier_tokens(layer.earlier.number, layer.earlier.filler)
        return {layer.earlier.key: tokens.to(self.model.device)}

    def _index_reads(
        self, layer: int, attention: Mapping[GroupIdx, AttentionStep], open_rows: Mapping[GroupIdx, torch.Tensor]
    ) -> IndexReads:
        group_idx, pages = self._indexers[layer]
        if layer not in self._open:
            return IndexReads(pages, attention[group_idx])
        open_group, open_pages = self._open[layer]
        return PooledReads(pages, open_pages, open_rows[open_group], attention[group_idx])
