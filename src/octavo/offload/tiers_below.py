"""`TiersBelow`: the tiers below the arena in order, what waits to be written to each, and what is read from them."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from octavo.chunks import ChunkSizes, OffloadKey, SequenceNames
from octavo.host import HostArena, ResidentChunks
from octavo.offload.lower_tier import LowerTier, OffloadLimits
from octavo.offload.manager_values import Room
from octavo.offload.promotions import Promotions
from octavo.offload.write_through import WriteThrough
from octavo.tiers import Tier


class TiersBelow:
    """Asks all tiers together. Each tier has its own fence (`LowerTier`) and its own queue of writes."""

    def __init__(
        self,
        tiers: Sequence[Tier],
        *,
        resident: ResidentChunks,
        arena: HostArena,
        sizes: ChunkSizes,
        limits: OffloadLimits,
        job_ids: Iterator[int],
    ) -> None:
        is_followed = resident.changes is not None
        self.lowers = [
            LowerTier(tier, limits, resident.remove_readers, resident.departures, sizes=sizes, is_followed=is_followed)
            for tier in tiers
        ]
        self.promotions = Promotions(
            self.lowers, resident=resident, arena=arena, sizes=sizes, limits=limits, job_ids=job_ids
        )
        waiting_slots = int(arena.num_slots * limits.waiting_share) // max(1, len(tiers))
        self._writes = [
            WriteThrough(
                lower,
                resident=resident,
                arena=arena,
                sizes=sizes,
                limits=limits,
                most_slots=max(1, waiting_slots),
                job_ids=job_ids,
            )
            for lower in self.lowers
        ]
        self._resident = resident

    # ---- what is there ------------------------------------------------------------------------------------------

    def ask(self, sequence: SequenceNames, *, wants_answer: bool) -> bool:
        """Asks all tiers. Whether one of them has not yet said what it holds of the sequence."""
        answers = [lower.ask(sequence, wants_answer=wants_answer) for lower in self.lowers if lower.asks_ahead]
        return any(answers)

    @property
    def asks_ahead(self) -> bool:
        """Whether some tier knows only the sequences that it was asked for ahead."""
        return any(lower.asks_ahead for lower in self.lowers)

    def touch(self, keys: Sequence[OffloadKey]) -> None:
        for lower in self.lowers:
            lower.touch(keys)

    def remove(self, keys: Sequence[OffloadKey]) -> None:
        """These chunks are not written any more, and are on no tier from now on."""
        for writes in self._writes:
            writes.forget(keys)
        for lower in self.lowers:
            lower.remove(keys)

    def rooms(self) -> list[Room]:
        """The rooms of the tiers that work and have a budget."""
        statuses = [lower.status() for lower in self.lowers if lower.is_available]
        return [
            Room(status.bytes_budget, max(0.0, 1 - status.bytes_used / status.bytes_budget), is_memory=False)
            for status in statuses
            if status.bytes_budget
        ]

    def announce(self) -> None:
        """Tells anew what all tiers have."""
        for lower in self.lowers:
            lower.announce()

    @property
    def has_more_changes(self) -> bool:
        return any(lower.has_more_changes for lower in self.lowers)

    # ---- writing ------------------------------------------------------------------------------------------------

    def write(self, keys: Sequence[OffloadKey], *, read_from: int | None = None, more_follows: bool = False) -> None:
        """Writes chunks to all tiers that lack them, except the tier, given by its index, that they were read from.
        `more_follows`: the rest of their prompt comes soon."""
        for index, writes in enumerate(self._writes):
            if index != read_from:
                writes.add(keys, more_follows=more_follows)

    def renew(self, keys: Sequence[OffloadKey]) -> None:
        """Writes these chunks again to the lowest working tier, if it gave them up."""
        lowest = next((writes for writes in reversed(self._writes) if writes.is_available), None)
        if lowest is not None:
            lowest.renew(keys)

    @property
    def is_writing(self) -> bool:
        """Whether something waits to be written, or is being written."""
        return any(self._writes)

    def is_behind(self, num_slots: int, num_coming: int) -> bool:
        """Whether a working tier would miss chunks if stores of `num_slots` slots came now, after the `num_coming`
        slots that are on their way already."""
        return any(writes.is_behind(num_slots, num_coming) for writes in self._writes)

    def write_now(self) -> None:
        """What waits is written with the next `poll`, whatever may follow."""
        for writes in self._writes:
            writes.wait_no_more()

    def clear_writes(self) -> None:
        """Drops all chunks that wait. The slots that they held are freed piece by piece."""
        for writes in self._writes:
            self._resident.discards.add(writes.clear())

    # ---- time ---------------------------------------------------------------------------------------------------

    def poll(self, now: float, arrived: Callable[[Sequence[OffloadKey], int], None]) -> None:
        """Once per step: handles ended jobs of the tiers, deadlines, and chunks that wait to be written. `arrived` is
        told the keys that were read into memory, and the index of the tier that they come from."""
        for index, (lower, writes) in enumerate(zip(self.lowers, self._writes, strict=True)):
            for result in lower.poll(now):
                if not writes.finish(result):
                    arrived(self.promotions.finish(result, now), index)
            writes.expire(now)
            if lower.is_broken:
                writes.give_up()
                self.promotions.give_up(lower)
            if self._resident.changes is None:
                lower.take_changes()  # nobody will ask for them, and they would pile up
        self.promotions.expire(now)
        for writes in self._writes:
            writes.submit(now)

    def flush(self, timeout_s: float, clock: Callable[[], float], poll: Callable[[], None]) -> bool:
        """Blocks until everything that waits is on the tiers, as durable as they make it. False if time is up
        before."""
        deadline = clock() + timeout_s
        self.write_now()
        while True:
            poll()
            was_busy = self.is_writing
            for lower in self.lowers:
                if not lower.flush(max(0.0, deadline - clock())):
                    return False
            poll()
            if not was_busy:
                return True
            if clock() >= deadline:
                return False

    def close(self) -> None:
        for writes in self._writes:
            writes.clear()
        self.promotions.clear()
        for lower in self.lowers:
            lower.close()

    def counters(self) -> Iterable[tuple[str, int]]:
        """Counters by name. They only grow."""
        yield "written_through", sum(writes.num_written for writes in self._writes)
        yield "write_through_dropped", sum(writes.num_dropped for writes in self._writes)
        yield "write_through_failed", sum(writes.num_failed for writes in self._writes)
        yield "promoted", self.promotions.num_read
        yield "promotion_failed", self.promotions.num_failed
        yield "promotion_late", self.promotions.num_late
        yield "promotion_refused", self.promotions.num_refused
        yield "tier_pauses", sum(lower.num_pauses for lower in self.lowers)
        yield "tier_errors", sum(lower.num_errors for lower in self.lowers)
