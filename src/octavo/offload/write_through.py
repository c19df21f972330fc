"""Chunks on their way from the arena to one tier below, in the background.

A chunk that waits or is being written has a reader, so its slots stay as they are. What waits is bounded in slots.
Beyond that a chunk is *late*: it is written when nothing waits any more, if it is still in memory then. What is not,
what a tier refuses while nothing is in flight, and all that a tier does not take because it is off, is dropped and
counted: the tier will not have it.

Where a tier gathers, chunks of a prompt that is being computed wait for the rest of it: for `gather_s` at most, and not
once half of the room is taken.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from octavo.chunks import NO_TENANT, ChunkBytes, ChunkSizes, OffloadKey, TierResult
from octavo.host import NO_CHECKSUM, HostArena, ResidentChunks
from octavo.ids import Slot
from octavo.offload.lower_tier import LowerTier, OffloadLimits
from octavo.tables import Part
from octavo.tiers import TierState

_MOST_DROPPED_PER_CALL = 1024
"""The most chunks that one call drops for a tier that takes nothing; the next call drops more."""
_MOST_SUBMITTED_PER_CALL = 1024
"""The most chunks that one call gives the tier, at 8 us each; the next call gives it more."""
_MOST_REFUSED_PER_CALL = 32
"""A tier that has refused this number of chunks one by one takes nothing for now, though it works: it is full, or it
cannot be written. A try costs more than a drop."""
_MOST_LATE = 1 << 16
"""The most late chunks. Beyond that the oldest is forgotten."""


class _Write(NamedTuple):
    keys: list[OffloadKey]
    heads: list[Slot]
    deadline: float


class WriteThrough:
    """The chunks that one tier has still to get."""

    def __init__(
        self,
        lower: LowerTier,
        *,
        resident: ResidentChunks,
        arena: HostArena,
        sizes: ChunkSizes,
        limits: OffloadLimits,
        most_slots: int,
        job_ids: Iterator[int],
    ) -> None:
        self.num_dropped = 0
        self.num_written = 0
        self.num_failed = 0
        self._lower = lower
        self._resident = resident
        self._arena = arena
        self._sizes = sizes
        self._limits = limits
        self._most_slots = most_slots
        self._job_ids = job_ids
        self._slots_waiting = 0
        self._waiting: deque[tuple[OffloadKey, Slot, int]] = deque()
        """(key, head, number of slots) of each chunk that waits."""
        self._heads: set[Slot] = set()
        """The heads of chunks that wait or are being written."""
        self._late: deque[OffloadKey] = deque()
        self._writes: dict[int, _Write] = {}
        self._is_due = False
        """Whether what waits is to be written now, whatever may follow."""
        self._gathers_until: float | None = None
        """None: nothing has begun to wait for more."""

    def __bool__(self) -> bool:
        return bool(self._waiting or self._writes or self._late)

    def add(self, keys: Sequence[OffloadKey], *, more_follows: bool = False) -> None:
        """These chunks are now resident. Those that the tier lacks wait for their turn. `more_follows`: the rest of
        their prompt comes soon."""
        self._is_due |= not more_follows
        lacking = self._lacking(keys)
        self._put_off(lacking[self._accept(lacking) :])

    def renew(self, keys: Sequence[OffloadKey]) -> None:
        """These chunks are being used. Those that are resident and no longer on the tier wait for their turn if there
        is room, since they will be used again."""
        self._accept(self._lacking(keys))

    @property
    def is_available(self) -> bool:
        return self._lower.is_available

    def is_behind(self, num_slots: int, num_coming: int) -> bool:
        """Whether chunks of `num_slots` slots would find no room, behind `num_coming` slots that are being stored. The
        first chunk always finds room. If so, what waits is written at once."""
        before = self._slots_waiting + num_coming
        is_behind = bool(before) and before + num_slots > self._most_slots and self._lower.is_available
        self._is_due |= is_behind
        return is_behind

    def wait_no_more(self) -> None:
        """What waits is written with the next `submit`, whatever may follow."""
        self._is_due = True

    def submit(self, now: float) -> None:
        """Gives the tier what it takes."""
        self._catch_up()
        if self._gathers(now):
            return
        size, num_refused = self._limits.chunks_per_job, 0
        few_enough = len(self._waiting) - _MOST_SUBMITTED_PER_CALL
        while self._waiting:
            if len(self._waiting) <= few_enough:
                return
            if self._submit_first(size, now):
                continue
            is_off = not self._lower.is_available or self._lower.status().state is TierState.DEGRADED
            if is_off or num_refused == _MOST_REFUSED_PER_CALL:
                self._drop(min(len(self._waiting), _MOST_DROPPED_PER_CALL))
                self._drop_late(_MOST_DROPPED_PER_CALL)
                return
            if self._writes:
                return  # its queue is full; our own jobs will make room
            if size > 1:
                size = min(size, len(self._waiting)) // 2
            else:
                self._drop(1)
                num_refused += 1
        self._is_due, self._gathers_until = False, None

    def forget(self, keys: Collection[OffloadKey]) -> None:
        """These are not to be written any more. What is being written already is the tier's to forget."""
        forgotten = set(keys)
        gone = [write for write in self._waiting if write[0] in forgotten]
        if gone:
            self._waiting = deque(write for write in self._waiting if write[0] not in forgotten)
            self._let_go(gone)
        self._late = deque(key for key in self._late if key not in forgotten)

    def finish(self, result: TierResult) -> bool:
        """A job of the tier's has ended; False if it is no write."""
        write = self._writes.pop(result.job_id, None)
        if write is None:
            return False
        self._lower.worked()
        self.num_failed += len(result.failed)
        self.num_written += len(write.keys) - len(result.failed)
        self._heads.difference_update(write.heads)
        self._resident.remove_readers(write.keys, write.heads)
        return True

    def expire(self, now: float) -> None:
        """Gives up what the tier has not finished in time."""
        for job_id in [job_id for job_id, write in self._writes.items() if write.deadline <= now]:
            self._cancel(job_id)
            self._lower.missed_deadline()

    def give_up(self) -> None:
        """Cancels what is being written; what waits is dropped by `submit`."""
        for job_id in list(self._writes):
            self._cancel(job_id)

    def clear(self) -> Sequence[Part]:
        """Gives up everything, at a reset or the end: what waits is read no more without saying so, since nothing is
        resident after that. What is to be freed piecemeal."""
        self.give_up()
        self.num_dropped += len(self._waiting) + len(self._late)
        parts: list[Part] = [self._waiting, self._late]
        self._waiting, self._late, self._heads, self._slots_waiting = deque(), deque(), set(), 0
        return parts

    def _gathers(self, now: float) -> bool:
        """Whether what waits is to wait for more."""
        if self._is_due or not self._waiting:
            return False
        if self._gathers_until is None:
            self._gathers_until = now + self._lower.gather_s
        return now < self._gathers_until and 2 * self._slots_waiting <= self._most_slots

    def _lacking(self, keys: Sequence[OffloadKey]) -> list[OffloadKey]:
        """The chunks that are resident, are not on their way, and have blocks that the tier lacks."""
        heads, masks = self._resident.index.find(keys), self._resident.masks(keys)
        found = zip(keys, heads, masks, self._lower.masks(keys), strict=True)
        return [key for key, head, mask, below in found if mask & ~below and head not in self._heads]

    def _accept(self, keys: Sequence[OffloadKey]) -> int:
        """The chunks for which there is room, from the front, wait from now on. Their number."""
        if not self._lower.is_available:
            return 0
        counts = self._sizes.num_slots(keys, self._resident.masks(keys))
        num_accepted, slots_waiting = 0, self._slots_waiting
        for count in counts:
            if slots_waiting and slots_waiting + count > self._most_slots:
                break
            slots_waiting += count
            num_accepted += 1
        accepted = keys[:num_accepted]
        heads = self._resident.index.find(accepted)
        self._resident.add_readers(accepted, heads)
        self._heads.update(heads)
        self._waiting.extend(zip(accepted, heads, counts, strict=False))
        self._slots_waiting = slots_waiting
        return num_accepted

    def _put_off(self, keys: Sequence[OffloadKey]) -> None:
        if not self._lower.is_available:
            self.num_dropped += len(keys)
            return
        self._late.extend(keys)
        self._drop_late(len(self._late) - _MOST_LATE)

    def _drop_late(self, count: int) -> None:
        for _ in range(min(count, len(self._late))):
            self._late.popleft()
            self.num_dropped += 1

    def _catch_up(self) -> None:
        """When nothing else is to be written, the next of those that are late wait, if they are still in memory."""
        if not self._lower.is_available:
            self._drop_late(_MOST_DROPPED_PER_CALL)
        if self._waiting or self._writes:
            return
        keys = [self._late.popleft() for _ in range(min(len(self._late), self._limits.chunks_per_job))]
        there = [key for key, mask in zip(keys, self._resident.masks(keys), strict=True) if mask]
        self.num_dropped += len(keys) - len(there)
        self.add(there)

    def _submit_first(self, size: int, now: float) -> bool:
        batch = [self._waiting[i] for i in range(min(max(size, 1), len(self._waiting)))]
        chunks = []
        for key, head, _ in batch:
            mask = self._resident.table.mask(head)
            buffers = self._arena.buffers(self._resident.table.chain(head), self._sizes.num_bytes(key, mask))
            checksum = self._resident.table.checksums[head]
            tenant = self._resident.table.tenants.get(head, NO_TENANT)
            chunks.append(ChunkBytes(key, buffers, mask, None if checksum == NO_CHECKSUM else checksum, tenant))
        job_id = next(self._job_ids)
        if not self._lower.is_available or not self._lower.submit_store(job_id, chunks):
            return False
        self._take(len(batch))
        self._writes[job_id] = _Write(
            [key for key, _, _ in batch], [head for _, head, _ in batch], now + self._limits.store_timeout_s
        )
        return True

    def _take(self, count: int) -> None:
        taken = [self._waiting.popleft() for _ in range(count)]
        self._slots_waiting -= sum(num_slots for _, _, num_slots in taken)

    def _drop(self, count: int) -> None:
        self._let_go([self._waiting.popleft() for _ in range(count)])

    def _let_go(self, writes: Sequence[tuple[OffloadKey, Slot, int]]) -> None:
        """These wait no more, and are not written."""
        self._slots_waiting -= sum(num_slots for _, _, num_slots in writes)
        self.num_dropped += len(writes)
        heads = [head for _, head, _ in writes]
        self._heads.difference_update(heads)
        self._resident.remove_readers([key for key, _, _ in writes], heads)

    def _cancel(self, job_id: int) -> None:
        write = self._writes.pop(job_id)
        self.num_failed += len(write.keys)
        self._heads.difference_update(write.heads)
        self._lower.cancel(job_id, write.keys, write.heads)
