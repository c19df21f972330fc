"""The offloading manager: which chunk lies in which slots, and what is on its way to or from the tiers below.

    MISS --prepare_store--> HIT_PENDING --complete_store--> HIT --evict--> RETRY if a tier below has it, else MISS
                                ^                            |
    RETRY --promote-------------'          prepare_load -> pinned -> complete_load

It composes `ResidentChunks` (what is in the arena), a `WriteThrough` for each tier below, and `Promotions`.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count

from octavo.chunks import (
    ChunkSizes,
    GroupOffloadConfig,
    LookupResult,
    OffloadChanges,
    OffloadKey,
    Place,
    PromisedPoint,
    TierResult,
    WantedChunk,
    changes_of_medium,
    stored_chunks,
)
from octavo.errors import OffloadError
from octavo.host import NO_CHECKSUM, NO_CHUNK, HostArena, ResidentChunks
from octavo.offload.lower_tier import LowerTier, OffloadLimits
from octavo.offload.manager_values import LoadJob, OffloadStatus, PreparedLoad, PreparedStore, StoreJob
from octavo.offload.promotions import Promotions
from octavo.offload.write_through import WriteThrough
from octavo.policies import EvictionPolicy
from octavo.tiers import Tier

MEMORY = "memory"
"""The arena's medium, as changes name it."""


class OffloadingManager:
    """Which chunk lies in which slots of the arena, and what is on its way to or from the tiers below.

    One thread calls it, once per request or step for all keys concerned. It has no clock: `poll(now)` tells it the
    time, and every deadline is in the same seconds.

    Jobs are numbered by the manager, loads and stores together; give the number on to the worker, and back with its
    `TransferResult`: `complete_store(r.job_id, r.failed, r.checksums)`. Each prepared job must be completed exactly
    once, also after a `reset` in between: its slots are not free before that.
    """

    def __init__(
        self,
        arena: HostArena,
        groups: Sequence[GroupOffloadConfig],
        policy: EvictionPolicy,
        tiers: Sequence[Tier] = (),
        *,
        limits: OffloadLimits | None = None,
        keeps_in_memory: bool = True,
        logs_changes: bool = False,
    ) -> None:
        """Without `keeps_in_memory` the arena is only a staging area: a chunk leaves it once it is on the tiers below,
        and once it was loaded. With `logs_changes` the caller takes the changes, once per step."""
        limits = limits or OffloadLimits()
        job_ids = count(1)
        self.arena = arena
        self._sizes = ChunkSizes(groups, arena.slot_bytes)
        self._policy = policy
        self._resident = ResidentChunks(
            arena.num_slots,
            policy,
            keeps_idle=keeps_in_memory,
            logs_changes=logs_changes,
        )
        self._lowers = [LowerTier(tier, limits, self._resident.remove_readers) for tier in tiers]
        waiting_slots = int(arena.num_slots * limits.waiting_share) // max(1, len(tiers))
        self._writes = [
            WriteThrough(
                lower,
                resident=self._resident,
                arena=arena,
                sizes=self._sizes,
                limits=limits,
                most_slots=max(1, waiting_slots),
                job_ids=job_ids,
            )
            for lower in self._lowers
        ]
        self._promotions = Promotions(
            self._lowers,
            resident=self._resident,
            arena=arena,
            sizes=self._sizes,
            limits=limits,
            job_ids=job_ids,
        )
        self._keeps_in_memory = keeps_in_memory
        self._job_ids = job_ids
        self._loads: dict[int, LoadJob] = {}
        self._stores: dict[int, StoreJob] = {}
        self._storing: dict[OffloadKey, int] = {}
        """Key -> the blocks that are being stored."""
        self._generation = 0
        self._now = 0.0
        self._counters = dict.fromkeys(_COUNTERS, 0)

    # ---- finding ------------------------------------------------------------------------------------------------

    def lookup(self, keys: Sequence[OffloadKey]) -> list[LookupResult]:
        """Where each chunk stands. Advice: only `prepare_load` pins."""
        shards = self._resident.index.shards
        results = [LookupResult.HIT if key in shards[key[0]] else LookupResult.MISS for key in keys]
        if LookupResult.MISS in results:
            self._look_further(keys, results)
        return results

    def held_blocks(self, keys: Sequence[OffloadKey]) -> list[int]:
        """By key: which blocks the nearest copy has (ALL_BLOCKS, a bit mask, 0 where there is none): in memory, on its
        way there, or on the first tier that has it."""
        masks = self._resident.masks(keys)
        for place in [place for place, mask in enumerate(masks) if not mask]:
            masks[place] = self._storing.get(keys[place], 0) or self._promotions.reading.get(keys[place], 0)
        for lower in self._lowers:
            missing = [place for place, mask in enumerate(masks) if not mask]
            found = lower.masks([keys[place] for place in missing])
            for place, mask in zip(missing, found, strict=True):
                masks[place] = mask
        return masks

    @property
    def logs_changes(self) -> bool:
        """Whether `take_changes` has something to say."""
        return self._resident.changes is not None

    @property
    def media(self) -> list[str]:
        """Memory, and what lies below it, the slowest last."""
        return [MEMORY, *(lower.medium for lower in self._lowers)]

    def depths_of(self, keys: Sequence[OffloadKey]) -> dict[OffloadKey, int]:
        """For those of these that are there, the place in `media` of what they come from."""
        depths: dict[OffloadKey, int] = {}
        missing = list(keys)
        sides: list[ResidentChunks | LowerTier] = [self._resident, *self._lowers]
        for depth, side in enumerate(sides):
            found = dict(zip(missing, side.masks(missing), strict=True))
            depths |= {key: depth for key, mask in found.items() if mask}
            missing = [key for key, mask in found.items() if not mask]
        return depths

    def touch(self, keys: Sequence[OffloadKey], *, stays_in_memory: bool = False) -> None:
        """A request uses these, in the order of its sequence. Unknown ones are fine. The lowest tier that works gets
        again what it has given up while memory has it, unless the request's chunks are to stay in memory."""
        self._policy.touch(keys)
        for lower in self._lowers:
            lower.touch(keys)
        lowest = next((writes for writes in reversed(self._writes) if writes.is_available), None)
        if lowest is not None and not stays_in_memory:
            lowest.renew(keys)

    # ---- loads --------------------------------------------------------------------------------------------------

    def prepare_load(self, keys: Sequence[OffloadKey]) -> PreparedLoad | None:
        """Pins these chunks. Atomic: None, and nothing has changed, if one of them is no longer HIT."""
        heads = self._resident.index.find(keys)
        if NO_CHUNK in heads:
            return None
        keys = list(keys)
        self._resident.add_readers(keys, heads)
        self._promotions.loaded(keys)
        job_id = next(self._job_ids)
        self._loads[job_id] = LoadJob(keys, heads)
        table = self._resident.table
        checksums = table.checksums
        return PreparedLoad(
            job_id=job_id,
            slots=table.chains(heads),
            held_blocks=table.masks(heads),
            checksums=[None if checksums[head] == NO_CHECKSUM else checksums[head] for head in heads],
        )

    def complete_load(self, job_id: int, failed: Collection[int] = ()) -> None:
        """The load has ended. Chunks at failed places are forgotten: their bytes are not what was stored."""
        load = self._loads.get(job_id)
        if load is None:
            raise OffloadError(f"there is no load {job_id}: it was completed before, or never prepared")
        _require_places(job_id, failed, len(load.keys))
        del self._loads[job_id]
        if failed:
            self._counters["failed_loads"] += len(failed)
            index = self._resident.index
            self._resident.drop(
                [load.keys[place] for place in failed if index.get(load.keys[place]) == load.heads[place]]
            )
        self._resident.remove_readers(load.keys, load.heads)
        self._counters["loaded"] += len(load.keys) - len(failed)

    # ---- stores -------------------------------------------------------------------------------------------------

    def prepare_store(
        self, chunks: Sequence[WantedChunk], promises: Sequence[PromisedPoint] = (), *, for_tiers: bool = False
    ) -> PreparedStore | None:
        """Takes slots for those of these chunks, in the order of their sequences, that are not there with all wanted
        blocks and not on their way. Atomic: None, and nothing has changed, if there is no room. `promises` reach the
        policy when the store has ended. With `for_tiers` there is no room either while a tier below that works has so
        much to write that it would not get all of these."""
        places, masks, there = self._missing(chunks)
        if len(places) < len(chunks):
            chunks = [chunks[place] for place in places]
        keys = [chunk[0] for chunk in chunks]
        counts = self._sizes.num_slots(keys, masks)
        must_wait = for_tiers and self._is_behind(sum(counts))
        slots = None if must_wait else self._resident.allocate(counts, there)
        if slots is None:
            self._counters["refused_stores"] += 0 if must_wait else len(keys)
            return None
        job_id = next(self._job_ids)
        if keys:
            self._storing.update(zip(keys, masks, strict=True))
            heads = [chain[0] for chain in slots]
            self._stores[job_id] = StoreJob(chunks, counts, heads, masks, promises, self._generation)
        else:
            self._promise(promises)
        return PreparedStore(job_id=job_id, places=places, slots=slots)

    def complete_store(
        self,
        job_id: int,
        failed: Collection[int] = (),
        checksums: Sequence[int] = (),
        *,
        stays_in_memory: bool = False,
    ) -> None:
        """The store has ended: by place in `PreparedStore.places`, what failed and the checksums, if they were taken.
        The others can be loaded from now on, and go to the tiers below unless they are to stay in memory."""
        store = self._stores.get(job_id)
        if store is None:
            raise OffloadError(f"there is no store {job_id}: it was completed before, or never prepared")
        _require_places(job_id, failed, len(store.chunks))
        if checksums and len(checksums) != len(store.chunks):
            raise OffloadError(f"store {job_id} has {len(store.chunks)} chunks, but {len(checksums)} checksums came")
        del self._stores[job_id]
        self._counters["failed_stores"] += len(failed)
        if store.generation != self._generation:
            self._resident.abandon(store.heads)
            return
        for chunk in store.chunks:
            del self._storing[chunk[0]]
        if failed:
            self._resident.abandon(store.heads[place] for place in set(failed))
            store, checksums = store.without(failed, checksums)
        keys = [chunk[0] for chunk in store.chunks]
        chunks = stored_chunks(store.chunks, store.counts)
        self._resident.publish(chunks, store.heads, store.masks, checksums)
        self._promise(store.promises)
        self._counters["stored"] += len(keys)
        if not stays_in_memory:
            self._write_through(keys, self._writes)

    # ---- the tiers below ----------------------------------------------------------------------------------------

    def promote(self, chunks: Sequence[WantedChunk], now: float, deadline: float) -> list[LookupResult]:
        """Starts to read those that are RETRY into memory, as many from the front as there is room for, and says where
        each stands now, for its wanted blocks: HIT has them all. A key that is on its way already is not read again,
        and keeps its deadline. Read chunks stay in memory until they were loaded once, or their deadline has passed."""
        places, _, there = self._missing(chunks)
        wanted = [chunks[place] for place in places if not self._promotions.has_failed(chunks[place].key)]
        if wanted and deadline > now:
            self._promotions.start(wanted, there, now, deadline)
        stands = self.lookup([chunk.key for chunk in chunks])
        for place in places:
            if stands[place] is LookupResult.HIT:  # with fewer blocks than are wanted
                is_coming = chunks[place].key in self._promotions.reading
                stands[place] = LookupResult.HIT_PENDING if is_coming else LookupResult.MISS
        return stands

    def poll(self, now: float) -> None:
        """Once per step: ends of the tiers' jobs, deadlines, what waits to be written to the tiers."""
        self._now = now
        for rank, (lower, writes) in enumerate(zip(self._lowers, self._writes, strict=True)):
            for result in lower.poll(now):
                if not writes.finish(result):
                    self._arrived(rank, result)
            writes.expire(now)
            if lower.is_broken:
                writes.give_up()
                self._promotions.give_up(lower)
            if self._resident.changes is None:
                lower.take_changes()  # nobody will ask for them, and they would pile up
        self._promotions.expire(now)
        for writes in self._writes:
            writes.submit(now)
        self._resident.free_discarded()

    def has_pending_work(self) -> bool:
        """Whether something is to be polled for."""
        return any(self._writes) or bool(self._promotions) or bool(self._resident.discards)

    # ---- all of it ----------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forgets everything, on all tiers. Jobs that are under way free their slots when completed; no more."""
        self._generation += 1
        discards = self._resident.discards
        for writes in self._writes:
            discards.add(writes.clear())
        discards.add(self._promotions.clear())
        self._storing.clear()
        self._resident.clear(
            [head for store in self._stores.values() for head in store.heads],
            [
                *(head for load in self._loads.values() for head in load.heads),
                *(head for lower in self._lowers for head in lower.quarantined_heads),
            ],
        )
        for lower in self._lowers:
            lower.reset()

    def is_reset_durable(self) -> bool:
        """Whether no process finds again what a `reset` forgot; `poll` brings it about."""
        return all(lower.is_reset_durable() for lower in self._lowers)

    def take_changes(self) -> OffloadChanges:
        """What changed on each medium since the last call; nothing if changes are not logged."""
        if self._resident.changes is None:
            return OffloadChanges(was_cleared=False, media=())
        changes, was_cleared = self._resident.changes.take()
        by_medium: dict[str, list[Place]] = {MEMORY: [Place(changes, self._resident.masks)]}
        for lower in self._lowers:
            by_medium.setdefault(lower.medium, []).append(lower.take_changes())
        return OffloadChanges(
            was_cleared=was_cleared,
            media=tuple(changes_of_medium(medium, places) for medium, places in by_medium.items()),
        )

    def status(self) -> OffloadStatus:
        counters = {
            **self._counters,
            "evicted": self._resident.num_evicted,
            "written_through": sum(writes.num_written for writes in self._writes),
            "dropped_write_through": sum(writes.num_dropped for writes in self._writes),
            "failed_write_through": sum(writes.num_failed for writes in self._writes),
            "promoted": self._promotions.num_read,
            "failed_promotions": self._promotions.num_failed,
            "late_promotions": self._promotions.num_late,
            "refused_promotions": self._promotions.num_refused,
            "tier_pauses": sum(lower.num_pauses for lower in self._lowers),
            "tier_errors": sum(lower.num_errors for lower in self._lowers),
        }
        return OffloadStatus(
            num_slots=self.arena.num_slots,
            slot_bytes=self.arena.slot_bytes,
            free_slots=self._resident.table.num_free,
            num_chunks=len(self._resident.index),
            chunks_being_stored=len(self._storing),
            chunks_being_promoted=len(self._promotions.reading),
            counters=counters,
            tiers=tuple((lower.medium, lower.status()) for lower in self._lowers),
        )

    def flush(self, timeout_s: float, clock: Callable[[], float]) -> bool:
        """Blocks until what waits for the tiers below is there, as durable as they make it, or time is up: False."""
        deadline = clock() + timeout_s
        while True:
            self.poll(self._now)
            was_busy = any(self._writes)
            for lower in self._lowers:
                if not lower.flush(max(0.0, deadline - clock())):
                    return False
            self.poll(self._now)
            if not was_busy:
                return True
            if clock() >= deadline:
                return False

    def close(self) -> None:
        """Closes tiers and arena, in bounded time."""
        for writes in self._writes:
            writes.clear()
        self._promotions.clear()
        for lower in self._lowers:
            lower.close()
        self.arena.close()

    def check_invariants(self) -> None:
        """For tests: no slot is lost, none is in use twice."""
        being_stored = [head for store in self._stores.values() for head in store.heads]
        self._resident.check_invariants([*being_stored, *self._promotions.heads_being_written])
        assert all(value >= 0 for value in self.status().counters.values())
        current = [store for store in self._stores.values() if store.generation == self._generation]
        assert set(self._storing) == {chunk.key for store in current for chunk in store.chunks}
        assert not set(self._storing) & set(self._promotions.reading)

    # ---- helpers ------------------------------------------------------------------------------------------------

    def _look_further(self, keys: Sequence[OffloadKey], results: list[LookupResult]) -> None:
        """Replaces MISS where a chunk is on its way, or on a tier below."""
        storing, promotions = self._storing, self._promotions
        missing: list[int] = []
        for place, result in enumerate(results):
            if result is LookupResult.MISS:
                key = keys[place]
                if key in storing or key in promotions.reading:
                    results[place] = LookupResult.HIT_PENDING
                elif self._lowers and not promotions.has_failed(key):
                    missing.append(place)
        for lower in self._lowers:
            found = lower.masks([keys[place] for place in missing])
            for place, mask in zip(missing, found, strict=True):
                if mask:
                    results[place] = LookupResult.RETRY

    def _missing(self, chunks: Sequence[WantedChunk]) -> tuple[list[int], list[int], list[OffloadKey]]:
        """Places and wanted blocks of chunks that are neither there nor on their way; keys of those that are there."""
        storing, reading, table = self._storing, self._promotions.reading, self._resident.table
        keys = [chunk[0] for chunk in chunks]
        masks = self._sizes.masks(chunks)
        heads = self._resident.index.find(keys)
        distinct = set(keys)
        if (
            len(distinct) == len(keys)
            and heads.count(NO_CHUNK) == len(keys)
            and distinct.isdisjoint(storing)
            and distinct.isdisjoint(reading)
        ):
            return list(range(len(keys))), masks, []  # all new, as mostly: nothing to look at one by one
        places: list[int] = []
        there: list[OffloadKey] = []
        for place, (key, head, mask) in enumerate(zip(keys, heads, masks, strict=True)):
            if key in storing or key in reading or key not in distinct:
                continue
            distinct.discard(key)
            if head != NO_CHUNK and not mask & ~table.mask(head):
                there.append(key)
            else:
                places.append(place)
        return places, [masks[place] for place in places], there

    def _promise(self, promises: Iterable[PromisedPoint]) -> None:
        for point in promises:
            self._policy.promise(point)

    def _arrived(self, rank: int, result: TierResult) -> None:
        """Other tiers get it too, where they lack it."""
        others = [writes for place, writes in enumerate(self._writes) if place != rank]
        self._write_through(self._promotions.finish(result, self._now), others)

    def _is_behind(self, num_slots: int) -> bool:
        """Whether a tier that works would not get all chunks, if stores of `num_slots` slots came now."""
        if not self._lowers:
            return False
        storing = sum(sum(store.counts) for store in self._stores.values() if store.generation == self._generation)
        return any(writes.is_behind(num_slots, storing) for writes in self._writes)

    def _write_through(self, keys: Sequence[OffloadKey], to: Sequence[WriteThrough]) -> None:
        for writes in to:
            writes.add(keys)
        if not self._keeps_in_memory:
            self._resident.drop_idle(keys)


_COUNTERS = ("loaded", "failed_loads", "stored", "failed_stores", "refused_stores")


def _require_places(job_id: int, places: Collection[int], num_chunks: int) -> None:
    for place in places:
        if not 0 <= place < num_chunks:
            raise OffloadError(f"job {job_id} has {num_chunks} chunks: there is none at place {place}")
