"""The offloading manager: which chunk lies in which slots, and what is on its way to or from the tiers below.

    MISS --prepare_store--> HIT_PENDING --complete_store--> HIT --evict--> RETRY if a tier below has it, else MISS
                                ^                            |
    RETRY --promote-------------'          prepare_load -> pinned -> complete_load

It composes `ResidentChunks` (what is in the arena), `Jobs` (loads and stores under way), `TiersBelow` and `Tenants`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count
from types import MappingProxyType

from octavo.chunks import (
    ChunkSizes,
    Departures,
    GroupOffloadConfig,
    Leaving,
    LookupResult,
    MediumPlace,
    OffloadChanges,
    OffloadKey,
    PromisedPoint,
    SequenceNames,
    WantedChunk,
    changes_of_media,
    stored_chunks,
)
from octavo.host import NO_CHECKSUM, NO_CHUNK, HostArena, ResidentChunks
from octavo.ids import Slot
from octavo.offload.finder import ChunkFinder
from octavo.offload.jobs import Jobs
from octavo.offload.lower_tier import OffloadLimits
from octavo.offload.manager_values import OffloadStatus, PreparedLoad, PreparedStore, Room
from octavo.offload.media import Media
from octavo.offload.retentions import RETAIN_SHARE, Retentions
from octavo.offload.tenants import Tenants
from octavo.offload.tiers_below import TiersBelow
from octavo.policies import EvictionPolicy
from octavo.tiers import Tier


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
        quotas: Mapping[bytes, int] = MappingProxyType({}),
        departures: Departures | None = None,
        retain_share: float = RETAIN_SHARE,
    ) -> None:
        """Without `keeps_in_memory` the arena is only a staging area: a chunk leaves it once it is on the tiers below,
        and once it was loaded. With `logs_changes` the caller takes the changes, once per step. `quotas`: by tenant,
        the most bytes that are kept of its chunks. `departures` is told what media give up, and how. One tenant retains
        at most `retain_share` of memory."""
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
            departures=departures,
        )
        self._below = TiersBelow(
            tiers, resident=self._resident, arena=arena, sizes=self._sizes, limits=limits, job_ids=job_ids
        )
        self._promotions = self._below.promotions
        self.media = Media(self._below.lowers, self._promotions.speeds)
        self._jobs = Jobs(job_ids)
        self._keeps_in_memory = keeps_in_memory
        self._finder = ChunkFinder(
            self._resident, self._jobs.storing, self._promotions, self._below.lowers, self._sizes
        )
        self._now = 0.0
        self._counters = dict.fromkeys(("loaded", "load_failed", "stored", "store_failed", "store_refused"), 0)
        retained = arena.num_slots * arena.slot_bytes * retain_share if keeps_in_memory else 0
        self.retentions = Retentions(policy, int(retained))
        self._tenants = Tenants(quotas, self._sizes, self._resident, self._below)
        self.tell_all()

    # ---- finding ------------------------------------------------------------------------------------------------

    def lookup(self, keys: Sequence[OffloadKey]) -> list[LookupResult]:
        """Where each chunk is. The answer is advice: only `prepare_load` pins chunks."""
        return self._finder.lookup(keys)

    def ask(self, sequence: SequenceNames, *, wants_answer: bool = True) -> bool:
        """Tells the tiers below of a sequence that will be looked up or stored. True while a tier has not yet said what
        it holds of it, so a later lookup may find more. Ask again, until your deadline."""
        return self._below.ask(sequence, wants_answer=wants_answer)

    @property
    def asks_ahead(self) -> bool:
        """Whether a tier below knows only the sequences that `ask` told it of."""
        return self._below.asks_ahead

    def held_blocks(self, keys: Sequence[OffloadKey]) -> list[int]:
        """Per key: the blocks that the nearest copy has (ALL_BLOCKS, a bit mask, 0 without a copy). The nearest copy is
        in memory, on its way there, or on the first tier that has it."""
        return self._finder.held_blocks(keys)

    @property
    def logs_changes(self) -> bool:
        """Whether `take_changes` has something to say."""
        return self._resident.changes is not None

    def make_room_for(self, request_id: str) -> None:
        """From now on evictions from memory are put down to this request, for those who ask why a chunk left."""
        if self._resident.departures is not None:
            self._resident.departures.by = request_id

    def depths_of(self, keys: Sequence[OffloadKey]) -> dict[OffloadKey, int]:
        """For the keys that are found: the index in `media.names` of the medium that they come from."""
        return self._finder.depths_of(keys)

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        """A request has resumed with these chunks: group by group, in the order of its sequence. Unknown keys are
        ignored."""
        self._policy.touch(keys)
        if self._tenants:
            self._tenants.touch(keys)
        self._below.touch(keys)

    def renew(self, keys: Sequence[OffloadKey]) -> None:
        """Writes these chunks again to the lowest tier that works, if it gave them up and memory has them. Unknown keys
        are ignored. This is not a use: it keeps there what is used and what is promised."""
        self._below.renew(keys)

    def room(self, tenant: bytes) -> Room:
        """The room of the medium that keeps chunks longest, or of the tenant's quota if that is smaller."""
        num_slots = self.arena.num_slots
        memory = Room(num_slots * self.arena.slot_bytes, self._resident.table.num_free / num_slots, is_memory=True)
        rooms = self._below.rooms()
        return self._tenants.narrowed(max([*rooms, *([memory] if self._keeps_in_memory or not rooms else [])]), tenant)

    def pin(self, keys: Sequence[OffloadKey]) -> list[tuple[OffloadKey, Slot]]:
        """Keeps those of these chunks that are in memory there until `unpin`. Returns their keys and heads. This is not
        a use."""
        found = zip(keys, self._resident.index.find(keys), strict=True)
        pins = [(key, head) for key, head in found if head != NO_CHUNK]
        self._resident.add_readers([key for key, _ in pins], [head for _, head in pins])
        return pins

    def unpin(self, pins: Sequence[tuple[OffloadKey, Slot]]) -> None:
        """Ends a `pin`, with what it returned; before a `reset`."""
        self._resident.remove_readers([key for key, _ in pins], [head for _, head in pins])

    # ---- loads --------------------------------------------------------------------------------------------------

    def prepare_load(self, keys: Sequence[OffloadKey]) -> PreparedLoad | None:
        """Pins these chunks. Atomic: if one of them is no longer HIT, it returns None and has changed nothing."""
        heads = self._resident.index.find(keys)
        if NO_CHUNK in heads:
            return None
        keys = list(keys)
        self._resident.add_readers(keys, heads)
        self._promotions.release(keys)
        job_id = self._jobs.add_load(keys, heads)
        table = self._resident.table
        checksums = table.checksums
        return PreparedLoad(
            job_id=job_id,
            slots=table.chains(heads),
            held_blocks=table.masks(heads),
            checksums=[None if checksums[head] == NO_CHECKSUM else checksums[head] for head in heads],
        )

    def complete_load(self, job_id: int, failed: Collection[int] = ()) -> None:
        """Ends a load. Chunks at failed indices are forgotten, since their bytes are not those that were stored."""
        load, resident = self._jobs.end_load(job_id, failed), self._resident.index
        if failed:
            self._counters["load_failed"] += len(failed)
            self._resident.drop(
                [load.keys[index] for index in failed if resident.get(load.keys[index]) == load.heads[index]],
                Leaving.DAMAGED,
            )
        self._resident.remove_readers(load.keys, load.heads)
        self._counters["loaded"] += len(load.keys) - len(failed)

    # ---- stores -------------------------------------------------------------------------------------------------

    def prepare_store(
        self, chunks: Sequence[WantedChunk], promises: Sequence[PromisedPoint] = (), *, for_tiers: bool = False
    ) -> PreparedStore | None:
        """Takes slots for the chunks, given in the order of their sequences, that are neither there with all wanted
        blocks nor on their way. Atomic: without room it returns None and has changed nothing. `promises` reach the
        policy when the store has ended. With `for_tiers` it also returns None while a working tier below has so much to
        write that it would not get all of these chunks."""
        indices, masks, there = self._finder.missing(chunks)
        if self._tenants:
            indices, masks = self._tenants.fitting(chunks, indices, masks)
        if len(indices) < len(chunks):
            chunks = [chunks[index] for index in indices]
        keys = [chunk.key for chunk in chunks]
        counts = self._sizes.num_slots(keys, masks)
        must_wait = for_tiers and self._below.is_behind(sum(counts), self._jobs.num_slots_being_stored)
        slots = None if must_wait else self._resident.allocate(counts, there)
        if slots is None:
            self._counters["store_refused"] += 0 if must_wait else len(keys)
            return None
        if self._tenants:
            self._tenants.admit(chunks, masks)
        job_id = self._jobs.add_store(chunks, counts, [chain[0] for chain in slots], masks, promises)
        if not chunks:
            self._promise(promises)
        return PreparedStore(job_id=job_id, indices=indices, slots=slots)

    def complete_store(
        self,
        job_id: int,
        failed: Collection[int] = (),
        checksums: Sequence[int] = (),
        *,
        stays_in_memory: bool = False,
        more_follows: bool = False,
    ) -> None:
        """Ends a store. `failed` and `checksums`, if they were taken, are by index in `PreparedStore.indices`. The
        other chunks can be loaded from now on, and are written to the tiers below unless they are to stay in memory.
        `more_follows`: a tier may wait a while for the rest of the prompt, to write all of it together."""
        store = self._jobs.end_store(job_id, failed, checksums)
        self._counters["store_failed"] += len(failed)
        if not self._jobs.is_wanted(store):
            self._resident.abandon(store.heads)
            return
        if self._tenants:
            failed = [*failed, *self._tenants.lost_indices(store.chunks)]
        if failed:
            self._resident.abandon(store.heads[index] for index in set(failed))
            store, checksums = store.without(failed, checksums)
        keys = [chunk.key for chunk in store.chunks]
        chunks = stored_chunks(store.chunks, store.counts)
        self._resident.publish(chunks, store.heads, store.masks, checksums, [chunk.tenant for chunk in store.chunks])
        self._promise(store.promises)
        self._counters["stored"] += len(keys)
        if not stays_in_memory:
            self._write_through(keys, more_follows=more_follows)

    # ---- the tiers below ----------------------------------------------------------------------------------------

    def promote(
        self, chunks: Sequence[WantedChunk], now: float, deadline: float, *, beside: Sequence[OffloadKey] = ()
    ) -> list[LookupResult]:
        """Starts to read chunks that are RETRY into memory, from the front, as many as there is room for, evicting none
        of them that are there, and none of `beside`. Says where each is then; HIT has all wanted blocks. A key that
        is on its way already is not read again, and keeps its deadline. Chunks that were read stay in memory until they
        were loaded once, until somebody says `stop_waiting` for them, or until their deadline."""
        self._promotions.want(chunk.key for chunk in chunks)
        indices, _, there = self._finder.missing(chunks)
        if indices and deadline > now:
            wanted = [chunks[index] for index in indices]
            if self._tenants:
                wanted = self._tenants.admit_read(wanted, [*there, *beside])
            self._promotions.start(wanted, [*there, *beside], now, deadline)
        return self._finder.lookup_whole(chunks)

    def may_find_room(self, chunks: Sequence[WantedChunk]) -> bool:
        """Whether chunks that `promote` left RETRY may be taken later: reads or loads are under way, whose ends make
        room in the queues of tiers and in memory, and memory can hold all of these chunks."""
        counts = self._sizes.num_slots([chunk.key for chunk in chunks], self._sizes.masks(chunks))
        return bool(self._promotions.reading or self._jobs.is_loading) and sum(counts) <= self.arena.num_slots

    def stop_waiting(self, keys: Sequence[OffloadKey]) -> None:
        """A request that had these chunks promoted has ended, or goes on without them. Unknown keys are ignored."""
        self._promotions.release(keys)

    def write_now(self) -> None:
        """A prompt is complete: what waits for more of it is written with the next `poll`."""
        self._below.write_now()

    def seconds_to_read(self, num_bytes: Mapping[int, int], *, waits_for_others: bool = False) -> float:
        """The seconds that the tiers need for these bytes, by index in `media.names`, after all reads that were asked
        for before; zero while nothing was measured. `waits_for_others`: some of those reads are wanted too."""
        by_tier = {depth - 1: count for depth, count in num_bytes.items()}
        return self._promotions.seconds_to_read(by_tier, self._now, waits_for_others=waits_for_others)

    def poll(self, now: float) -> None:
        """Once per step: handles ended jobs of the tiers, deadlines, and chunks that wait to be written to the
        tiers."""
        self._now = now
        self._below.poll(now, self._arrived)
        self.retentions.poll(now)
        self._resident.free_discarded()

    def has_pending_work(self) -> bool:
        """Whether there is a reason to poll."""
        return self.is_moving() or bool(self._promotions)

    def is_moving(self) -> bool:
        """Whether something is on its way, or to be told or freed. What was read for a request that waits may be held
        for a minute without that."""
        promotions, discards = self._promotions, self._resident.discards
        return self._below.is_writing or promotions.is_reading or bool(discards) or self.has_more_changes

    # ---- all of it ----------------------------------------------------------------------------------------------

    def reset(self, *, tiers: bool = True, tells_each: bool = False) -> None:
        """Forgets everything in memory, and on the tiers below unless they are spared. Jobs under way only free their
        slots when they are completed. The content of spared tiers is told anew. With `tells_each` the changes name all
        chunks that went: then nobody needs to hear of the clear itself."""
        self._jobs.begin_generation()
        self._below.clear_writes()
        self._resident.discards.add(self._promotions.clear())
        self.retentions.clear()
        if tiers:
            self._tenants.clear()
        if self._resident.departures is not None:
            self._resident.departures.clear()
        self._resident.clear(
            self._jobs.heads_being_stored,
            [
                *self._jobs.heads_being_loaded,
                *(head for lower in self._below.lowers for head in lower.quarantined_heads),
            ],
            tells_each=tells_each,
        )
        if not tiers:
            self.tell_all()
            return
        for lower in self._below.lowers:
            lower.reset(tells_each=tells_each)

    def is_reset_durable(self) -> bool:
        """Whether no process, now or later, finds what a `reset` forgot. `poll` brings that about."""
        return all(lower.is_reset_durable() for lower in self._below.lowers)

    def tell_all(self) -> None:
        """Tells followers what is in memory and on the tiers below, whether they know it or not, a portion with each
        `take_changes`."""
        if self.logs_changes:
            self._resident.announce()
            self._below.announce()

    @property
    def has_more_changes(self) -> bool:
        """Whether the next `take_changes` goes on with what `tell_all` began, or with what tiers announce."""
        return self.logs_changes and (self._resident.has_more_changes or self._below.has_more_changes)

    def take_changes(self) -> OffloadChanges:
        """What changed on each medium since the last call; nothing if changes are not logged."""
        if not self.logs_changes:
            return OffloadChanges(was_cleared=False, media=())
        changes, was_cleared = self._resident.take_changes()
        places = [MediumPlace(changes, self._resident.masks), *(lower.take_changes() for lower in self._below.lowers)]
        return OffloadChanges(was_cleared=was_cleared, media=changes_of_media(self.media.names, places))

    def status(self) -> OffloadStatus:
        counters = {
            **self._counters,
            "evicted": self._resident.num_evicted,
            "quota_refused": self._tenants.num_refused,
            "quota_evicted": self._tenants.num_evicted,
            **dict(self._below.counters()),
        }
        return OffloadStatus(
            num_slots=self.arena.num_slots,
            slot_bytes=self.arena.slot_bytes,
            free_slots=self._resident.table.num_free,
            num_chunks=len(self._resident.index),
            chunks_being_stored=len(self._jobs.storing),
            chunks_being_promoted=len(self._promotions.reading),
            counters=counters,
            tiers=tuple((lower.medium, lower.status()) for lower in self._below.lowers),
        )

    def flush(self, timeout_s: float, clock: Callable[[], float]) -> bool:
        """Blocks until everything that waits for the tiers below is there, as durable as they make it. False if time is
        up before."""
        return self._below.flush(timeout_s, clock, lambda: self.poll(self._now))

    def close(self) -> None:
        """Closes tiers and arena, in bounded time."""
        self._below.close()
        self.arena.close()

    def check_invariants(self) -> None:
        """For tests: no slot is lost, and none is in use twice."""
        self._resident.check_invariants([*self._jobs.heads_being_stored, *self._promotions.heads_being_written])
        assert all(value >= 0 for value in self.status().counters.values())
        self._jobs.check_invariants()
        assert not set(self._jobs.storing) & set(self._promotions.reading)

    # ---- helpers ------------------------------------------------------------------------------------------------

    def _promise(self, promises: Iterable[PromisedPoint]) -> None:
        for point in promises:
            self._policy.promise(point)

    def _arrived(self, keys: Sequence[OffloadKey], index: int) -> None:
        """Writes chunks that were read from this tier to the other tiers that lack them."""
        if self._tenants:
            keys = self._tenants.drop_lost(keys)
        self._write_through(keys, read_from=index)

    def _write_through(
        self, keys: Sequence[OffloadKey], *, read_from: int | None = None, more_follows: bool = False
    ) -> None:
        self._below.write(keys, read_from=read_from, more_follows=more_follows)
        if not self._keeps_in_memory:
            self._resident.drop_idle(keys)
