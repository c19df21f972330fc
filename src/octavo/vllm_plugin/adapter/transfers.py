"""Loads and stores that vLLM's ranks run, from when the manager prepares them until vLLM says that they ended."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from vllm.v1.kv_offload.base import OffloadKey, PrepareStoreOutput

from octavo.chunks import OffloadKey as Key, PromisedPoint, WantedChunk, get_offload_group_idx
from octavo.errors import OffloadError
from octavo.ids import Slot
from octavo.offload import OffloadingManager as Manager
from octavo.vllm_plugin.adapter.chunk_slots import ChunkSlots
from octavo.vllm_plugin.groups import SharedGroup
from octavo.vllm_plugin.shared_arena import SharedArena


class _Job(NamedTuple):
    job_id: int
    heads: list[Slot]
    stays_in_memory: bool = False


class Transfers:
    """The manager's jobs by the keys that vLLM names them with. What the ranks noted of a job is in the arena."""

    def __init__(self, manager: Manager, shared: SharedArena, groups: Sequence[SharedGroup]) -> None:
        self._manager = manager
        self._shared = shared
        self._pages = [(group.page_size_bytes, group.is_by_rank) for group in groups]
        self._loads: defaultdict[frozenset[OffloadKey], list[_Job]] = defaultdict(list)
        """vLLM names a load that ended by its keys; of loads with equal keys any one will do."""
        self._stores: dict[OffloadKey, _Job] = {}
        """Key -> store. A key is in one store at a time."""
        self._stopped_loads: list[_Job] = []
        self._stopped_stores: list[_Job] = []

    def __bool__(self) -> bool:
        return bool(self._loads or self._stores)

    def counts(self) -> dict[str, int]:
        """The loads, and the keys of stores, that have not ended."""
        return {"loads": len(self._loads), "stores": len(self._stores)}

    def begin_load(self, keys: Collection[OffloadKey]) -> ChunkSlots:
        ours = as_keys(keys)
        prepared = self._manager.prepare_load(ours)
        if prepared is None:
            raise OffloadError("vLLM loads chunks that it has not looked up in this step")
        self._loads[frozenset(keys)].append(_Job(prepared.job_id, [slots[0] for slots in prepared.slots]))
        is_checked = [checksum is not None for checksum in prepared.checksums]
        return self._slots_of(ours, prepared.slots, is_checked)

    def end_load(self, keys: Collection[OffloadKey]) -> None:
        name = frozenset(keys)
        job = self._loads[name].pop(0)
        if not self._loads[name]:
            del self._loads[name]
        self._manager.complete_load(job.job_id, self._shared.take_failed(job.heads))
        self._shared.drop_name()

    def begin_store(
        self, chunks: Sequence[WantedChunk], points: Sequence[PromisedPoint], *, stays_in_memory: bool
    ) -> PrepareStoreOutput | None:
        """None if the manager takes nothing now."""
        prepared = self._manager.prepare_store(chunks, points)
        if prepared is None:
            return None
        new = [chunks[index].key for index in prepared.indices]
        named = list(map(OffloadKey, new))
        job = _Job(prepared.job_id, [slots[0] for slots in prepared.slots], stays_in_memory)
        self._stores.update(dict.fromkeys(named, job))
        return self._begun_store(named, self._slots_of(new, prepared.slots))

    def begin_empty_store(self) -> PrepareStoreOutput:
        return self._begun_store([], self._slots_of((), ()))

    def end_store(self, keys: Collection[OffloadKey], *, success: bool) -> None:
        job = self._stores[next(iter(keys))]
        for key in keys:
            del self._stores[key]
        failed = self._shared.take_failed(job.heads) if success else range(len(job.heads))
        checksums = self._shared.checksums(job.heads)
        self._manager.complete_store(job.job_id, failed, checksums, stays_in_memory=job.stays_in_memory)
        self._shared.drop_name()

    def stop(self) -> None:
        """vLLM has given up all loads and stores, and will not report them. Its ranks may still be at them: nothing
        takes their slots until `end_stopped`."""
        self._stopped_loads += [job for jobs in self._loads.values() for job in jobs]
        self._stopped_stores += {job.job_id: job for job in self._stores.values()}.values()
        self._loads.clear()
        self._stores.clear()

    def end_stopped(self) -> None:
        """No rank is at what was stopped. No chunk of these stores is kept."""
        for load in self._stopped_loads:
            self._manager.complete_load(load.job_id)
        for store in self._stopped_stores:
            self._manager.complete_store(store.job_id, range(len(store.heads)))
        self._stopped_loads, self._stopped_stores = [], []

    def _begun_store(self, keys: list[OffloadKey], slots: ChunkSlots) -> PrepareStoreOutput:
        # Evicted chunks are reported as events.
        return PrepareStoreOutput(keys_to_store=keys, store_spec=slots, evicted_keys=[])

    def _slots_of(
        self, keys: Sequence[Key], slots: Sequence[Sequence[Slot]], is_checked: Sequence[bool] = ()
    ) -> ChunkSlots:
        return ChunkSlots(
            groups=[get_offload_group_idx(key) for key in keys],
            slots=[list(chain) for chain in slots],
            is_checked=is_checked,
            arena_slots=self._shared.slots.num_slots,
            pages=self._pages,
        )


def as_keys(keys: Iterable[OffloadKey]) -> list[Key]:
    return [Key(key) for key in keys]
