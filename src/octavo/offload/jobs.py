"""`Jobs`: loads and stores that were prepared and have not ended. Each ends once, also after a reset in between."""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from octavo.chunks import OffloadKey, PromisedPoint, WantedChunk
from octavo.errors import OffloadError
from octavo.ids import Slot


class LoadJob(NamedTuple):
    """A load that was prepared and has not ended."""

    keys: list[OffloadKey]
    heads: list[Slot]


class StoreJob(NamedTuple):
    """A store that was prepared and has not ended."""

    chunks: Sequence[WantedChunk]
    counts: list[int]
    """The number of slots of each chunk."""
    heads: list[Slot]
    masks: list[int]
    promises: Sequence[PromisedPoint]
    generation: int

    def without(self, failed: Collection[int], checksums: Sequence[int]) -> tuple["StoreJob", Sequence[int]]:
        """The same job without the failed chunks at these indices, and the remaining checksums."""
        good = [index for index in range(len(self.chunks)) if index not in failed]
        rest = self._replace(
            chunks=[self.chunks[index] for index in good],
            counts=[self.counts[index] for index in good],
            heads=[self.heads[index] for index in good],
            masks=[self.masks[index] for index in good],
        )
        return rest, [checksums[index] for index in good] if checksums else ()


class Jobs:
    """Loads and stores under way. A reset begins a new generation: what older stores bring is dropped."""

    def __init__(self, ids: Iterator[int]) -> None:
        self.storing: dict[OffloadKey, int] = {}
        """Key -> the blocks that stores of this generation are bringing."""
        self.num_slots_being_stored = 0
        """What those stores take."""
        self._ids = ids
        self._loads: dict[int, LoadJob] = {}
        self._stores: dict[int, StoreJob] = {}
        self._generation = 0

    def add_load(self, keys: list[OffloadKey], heads: list[Slot]) -> int:
        job_id = next(self._ids)
        self._loads[job_id] = LoadJob(keys, heads)
        return job_id

    def end_load(self, job_id: int, failed: Collection[int]) -> LoadJob:
        load = self._loads.get(job_id)
        if load is None:
            raise OffloadError(f"there is no load {job_id}: it was completed before, or never prepared")
        _require_indices(job_id, failed, len(load.keys))
        return self._loads.pop(job_id)

    def add_store(
        self,
        chunks: Sequence[WantedChunk],
        counts: list[int],
        heads: list[Slot],
        masks: list[int],
        promises: Sequence[PromisedPoint],
    ) -> int:
        """A store without chunks gets a number, and has already ended."""
        job_id = next(self._ids)
        if chunks:
            self.storing.update((chunk.key, mask) for chunk, mask in zip(chunks, masks, strict=True))
            self._stores[job_id] = StoreJob(chunks, counts, heads, masks, promises, self._generation)
            self.num_slots_being_stored += sum(counts)
        return job_id

    def end_store(self, job_id: int, failed: Collection[int], checksums: Sequence[int]) -> StoreJob:
        store = self._stores.get(job_id)
        if store is None:
            raise OffloadError(f"there is no store {job_id}: it was completed before, or never prepared")
        _require_indices(job_id, failed, len(store.chunks))
        if checksums and len(checksums) != len(store.chunks):
            raise OffloadError(f"store {job_id} has {len(store.chunks)} chunks, but {len(checksums)} checksums came")
        del self._stores[job_id]
        if self.is_wanted(store):
            self.num_slots_being_stored -= sum(store.counts)
            for chunk in store.chunks:
                del self.storing[chunk.key]
        return store

    def is_wanted(self, store: StoreJob) -> bool:
        """Whether no reset happened since the job began."""
        return store.generation == self._generation

    def begin_generation(self) -> None:
        self._generation += 1
        self.storing.clear()
        self.num_slots_being_stored = 0

    @property
    def is_loading(self) -> bool:
        return bool(self._loads)

    @property
    def heads_being_loaded(self) -> list[Slot]:
        return [head for load in self._loads.values() for head in load.heads]

    @property
    def heads_being_stored(self) -> list[Slot]:
        return [head for store in self._stores.values() for head in store.heads]

    def check_invariants(self) -> None:
        """For tests."""
        wanted = [store for store in self._stores.values() if self.is_wanted(store)]
        assert set(self.storing) == {chunk.key for store in wanted for chunk in store.chunks}
        assert self.num_slots_being_stored == sum(sum(store.counts) for store in wanted)


def _require_indices(job_id: int, indices: Collection[int], num_chunks: int) -> None:
    for index in indices:
        if not 0 <= index < num_chunks:
            raise OffloadError(f"job {job_id} has {num_chunks} chunks: there is none at index {index}")
