"""What a tier holds, in stretches: runs of chunks that are kept and given up for the same reasons.

prefix group   [a0 a1 a2] <- [a3 a4]*        `<-`: holds. A stretch holds the one before it.  `*`: held by a point too
                          <- [b3]*           where two sequences part, a stretch ends
window group   [w0] [w1] [w2 w3]*            linked too, so that a point finds its window, but no stretch holds another

held       by points that need it, or by the stretches that follow
unneeded   held by nothing: the first to be given up; then the stretch before may be unneeded, and so on
pinned     all of it is being read. A stretch of which a part is, is cut
hole       held, and not there: one chunk that was removed, or has not arrived. It heals when it is inserted
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import eq, xor

from octavo.chunks import OffloadKey, StoredChunk
from octavo.policies.held_stretches import IDLE, UNNEEDED, HeldStretches
from octavo.policies.pinned import PinnedChunks
from octavo.policies.stretch_columns import Links
from octavo.tables import Part

MOST_CHUNKS = 64
"""The most chunks of one stretch, which bounds the work of a cut."""


class StretchTable(HeldStretches):
    """The stretches of a tier: how they come, are cut, are read, and go."""

    def __init__(self, links: Mapping[bytes, Links]) -> None:
        """`links`: by the last four bytes of a key, which name its group."""
        super().__init__(links)
        self._pinned = PinnedChunks()
        self.num_slots = self.num_idle_slots = 0

    def parts(self) -> Sequence[Part]:
        return [*self._numbers.shards, *self._pinned.parts(), self.keys, self.parents]

    # ---- coming ------------------------------------------------------------------------------------------------

    def insert(self, keys: tuple[OffloadKey, ...], slots: Sequence[int], chunks: Sequence[StoredChunk]) -> list[int]:
        """Makes stretches of new chunks, in the order of their sequences, or fills the holes that wait for them. `keys`
        and `slots` are those of the chunks. Returns the numbers of the stretches."""
        parents = [chunk.parent for chunk in chunks]
        follows = [*map(eq, parents[1:], keys), False]  # per chunk: whether the next one follows it
        are_alike = slots.count(slots[0]) == len(slots)
        numbers = []
        start = 0
        while start < len(keys):
            links = self._links[keys[start][-4:]]
            end = start + 1 if links is Links.NONE else min(follows.index(False, start) + 1, start + MOST_CHUNKS)
            if end > start + 1 and (self.num_holes or not are_alike):
                end = self._end_of_alike(keys, slots, start, end)
            numbers.append(self._enter(keys[start:end], slots[start], chunks[start].position, parents[start], links))
            start = end
        return numbers

    def _end_of_alike(self, keys: Sequence[OffloadKey], slots: Sequence[int], start: int, end: int) -> int:
        """Where a stretch ends that has chunks of one size, and either no hole or one hole alone."""
        if slots[start:end].count(slots[start]) < end - start:
            end = next(index for index in range(start, end) if slots[index] != slots[start])
        if self.num_holes:
            holes = (index for index in range(start, end) if keys[index] in self._numbers)
            end = min(end, max(start + 1, next(holes, end)))
        return end

    def _enter(
        self, keys: tuple[OffloadKey, ...], chunk_slots: int, position: int, parent: OffloadKey | None, links: Links
    ) -> int:
        number = hole = self._numbers.get(keys[0]) if self.num_holes else 0
        if hole:
            self.num_holes -= 1
        else:
            number = self._new_number()
            self.keys[number] = keys
            shards = self._numbers.shards
            for key in keys:
                shards[key[0]][key] = number
        self.parents[number] = None if links is Links.NONE else parent
        self.chunk_slots[number], self.starts[number] = chunk_slots, position
        num_slots = chunk_slots * len(keys)
        self.num_slots += num_slots
        self.num_idle_slots += num_slots
        self._lists.append(IDLE if self.num_holders[number] else UNNEEDED, number)
        if links is Links.PREFIX:
            self.in_prefix[number] = True
            if parent is not None:
                self._hold_parent(parent, number)
        if hole:
            self._note_change(number)
        return number

    def absorb(self, lower: int, upper: int) -> int:
        """Joins two stretches into one if only the upper one holds the lower one. Returns the stretch that has the
        upper one's chunks then."""
        keys, more = self.keys[lower], self.keys[upper]
        if (
            len(keys) + len(more) > MOST_CHUNKS
            or self.num_holders[lower] > 1
            or self.chunk_slots[lower] != self.chunk_slots[upper]
            or self.is_pinned(lower)
        ):
            return upper
        self.num_idle_slots -= self.slots_of(upper)
        self._forget(upper)
        self.keys[lower] = keys + more
        for key in more:
            self._numbers[key] = lower
        self.num_idle_slots += len(more) * self.chunk_slots[lower]
        return lower

    def _hold_parent(self, parent: OffloadKey, number: int) -> None:
        before = self.find(parent)
        if not before:
            before = self._new_hole(parent)
        elif self.keys[before][-1] != parent:
            before = self._cut_at(before, parent)
        self.befores[number] = before
        self.hold(before, number)

    def _new_hole(self, key: OffloadKey) -> int:
        number = self._new_number()
        self.keys[number], self.parents[number] = (key,), None
        self.chunk_slots[number], self.in_prefix[number] = 0, True
        self._numbers[key] = number
        self.num_holes += 1
        return number

    # ---- cutting -----------------------------------------------------------------------------------------------

    def cut_after(self, key: OffloadKey) -> int:
        """The stretch that ends with this chunk, which must be there."""
        return self._cut_at(self._numbers.get(key), key)

    def _cut_at(self, number: int, key: OffloadKey) -> int:
        keys = self.keys[number]
        return number if keys[-1] == key else self._cut(number, keys.index(key) + 1)

    def cut_last(self, number: int, num_chunks: int) -> int:
        """A stretch of the last chunks of this one, at most `num_chunks`."""
        if len(self.keys[number]) > num_chunks:
            self._cut(number, len(self.keys[number]) - num_chunks)
        return number

    def find_prefix(self, key: OffloadKey) -> int:
        """The stretch that ends with this chunk of a prefix group, cut if need be; 0 if not all chunks of the sequence
        up to there are there."""
        number = self.find(key)
        return self._cut_at(number, key) if self.is_complete(number) else 0

    def find_run(self, key: OffloadKey, count: int) -> list[int]:
        """The stretches of exactly the last `count` chunks up to this one, cut if need be, the last of them first; none
        if one of the chunks is not there."""
        number = self.find(key)
        if not count or not number or not self.chunk_slots[number]:
            return []
        keys = self.keys[number]
        if len(keys) == count and keys[-1] == key:  # as most are
            return [number]
        return self.cut_run(self._cut_at(number, key), count) if self.has_run(key, count) else []

    def hold_run(self, run: Sequence[int], point: int) -> int:
        """A point that ends with this run holds it. Returns the stretch with the last chunk; 0 if there is none."""
        for number in run:
            self.hold(number, point)
        if not run:
            return 0
        self.points[run[0]] = point
        return run[0]

    def cut_run(self, number: int, count: int) -> list[int]:
        """The stretches of exactly the last `count` chunks up to the end of this one, the last of them first. A run is
        found again while it is held."""
        numbers: list[int] = []
        while count > 0:
            if numbers:
                before = self.parents[number]
                assert before is not None, "all of the run is there"
                number = self.cut_after(before)
            count -= len(self.keys[self.cut_last(number, count)])
            numbers.append(number)
        return numbers

    def _cut(self, upper: int, index: int) -> int:
        """Makes a stretch of the chunks before `index`. The other chunks keep the number and all holders."""
        keys = self.keys[upper]
        lower = self._new_number()
        self.keys[lower], self.keys[upper] = keys[:index], keys[index:]
        for key in keys[:index]:
            self._numbers[key] = lower
        self.parents[lower], self.parents[upper] = self.parents[upper], keys[index - 1]
        self.chunk_slots[lower] = self.chunk_slots[upper]
        self.starts[lower], self.starts[upper] = self.starts[upper], self.starts[upper] + index
        self.in_prefix[lower] = self.in_prefix[upper]
        if self.in_prefix[upper]:
            self.num_holders[lower], self.holders[lower] = 1, upper
            before = self.befores[lower] = self.befores[upper]
            self.befores[upper] = lower
            if before:
                self.holders[before] ^= upper ^ lower
        else:
            self.num_holders[lower], self.holders[lower] = self.num_holders[upper], self.holders[upper]
        if upper in self._lists:
            is_unneeded = not self.num_holders[lower]
            self._lists.append(UNNEEDED if is_unneeded else IDLE, lower)
        return lower

    # ---- readers -----------------------------------------------------------------------------------------------

    def is_pinned(self, number: int) -> bool:
        return self.keys[number][-1] in self._pinned

    def goes_with_holder(self, number: int) -> bool:
        """Whether chunks of a stretch go when its only holder goes: it has one only, and is idle."""
        return self.num_holders[number] == 1 and number in self._lists

    def pin(self, keys: Sequence[OffloadKey]) -> None:
        changed: dict[int, None] = {}
        for key in keys:
            if key in self._pinned:
                self._pinned.add_reader(key)
            else:
                self._pinned.add(key, 0)
                changed[self._numbers.get(key)] = None
        for number in changed:
            self._part(number)

    def unpin(self, keys: Sequence[OffloadKey]) -> list[int]:
        """Makes stretches idle that nobody reads any more."""
        changed: dict[int, None] = {}
        for key in reversed(keys):
            if self._pinned.remove_reader(key) is not None:
                changed[self._numbers.get(key)] = None
        return [part for number in changed for part in self._part(number) if part in self._lists]

    def _part(self, number: int) -> list[int]:
        """Cuts a stretch into parts that are read and parts that are idle, the last part first."""
        is_read = [key in self._pinned for key in self.keys[number]]
        was_idle = number in self._lists
        parts = [number]
        for index in range(len(is_read) - 1, 0, -1):
            if is_read[index] != is_read[index - 1]:
                parts.append(self._cut(parts[-1], index))
        for part in parts:
            self._note_readers(part, was_idle=was_idle)
        return parts

    def _note_readers(self, number: int, *, was_idle: bool) -> None:
        is_idle = not self.is_pinned(number)
        if is_idle and not was_idle:
            self._lists.append(IDLE if self.num_holders[number] else UNNEEDED, number)
            self.num_idle_slots += self.slots_of(number)
        elif was_idle and not is_idle:
            self._lists.remove(number)
            self.num_idle_slots -= self.slots_of(number)

    # ---- going -------------------------------------------------------------------------------------------------

    def pop_unneeded(self, num_slots: int, victims: list[OffloadKey]) -> int:
        """Gives up unneeded chunks, and those that become unneeded thereby, the last of a stretch first, until
        `num_slots` are free or none is left. Returns the slots that become free."""
        freed = 0
        while freed < num_slots and (number := self._lists.first(UNNEEDED)) is not None:
            freed += self.take_last(number, num_slots - freed, victims)
        return freed

    def is_unneeded(self, number: int) -> bool:
        return number in self._lists and not self.num_holders[number]

    def take_last(self, number: int, num_slots: int, victims: list[OffloadKey]) -> int:
        """The same for one unneeded stretch."""
        keys, chunk_slots = self.keys[number], self.chunk_slots[number]
        count = min(len(keys), -(-num_slots // chunk_slots))
        taken = keys[: -count - 1 : -1]
        victims += taken
        shards = self._numbers.shards
        for key in taken:
            del shards[key[0]][key]
        freed = count * chunk_slots
        self.num_slots -= freed
        self.num_idle_slots -= freed
        if count < len(keys):
            self.keys[number] = keys[:-count]
        else:
            self._forget(number, is_indexed=False)
        return freed

    def pop_idle(self, victims: list[OffloadKey]) -> int:
        """The last resort, when every idle chunk hangs on a chunk that is read: takes one chunk, and leaves a hole.
        Returns the slots that become free."""
        number = self._lists.first(IDLE)
        assert number is not None, "something is idle"
        key, num_slots = self.keys[number][-1], self.chunk_slots[number]
        victims.append(key)
        self.remove(key)
        return num_slots

    def remove(self, key: OffloadKey) -> None:
        """The chunk is gone. While it is held it is a hole."""
        number = self.cut_last(self.cut_after(key), 1)
        self.num_slots -= self.slots_of(number)
        if key in self._pinned:
            self._pinned.forget(key)
        else:
            self.num_idle_slots -= self.slots_of(number)
        self._lists.remove(number)
        if not self.num_holders[number]:
            self._forget(number)
            return
        self._note_change(number)
        self.chunk_slots[number] = 0
        self.num_holes += 1
        if self.in_prefix[number]:
            before, self.parents[number], self.befores[number] = self.befores[number], None, 0
            if before:
                self.release(before, number)

    # ---- for tests ---------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        self._lists.check_invariants()
        self.check_columns()
        numbers = self.numbers()
        followers: dict[int, list[int]] = {number: [] for number in numbers}
        for number in numbers:
            if self.befores[number]:
                followers[self.befores[number]].append(number)
        idle = [number for number in numbers if self.chunk_slots[number] and not self.is_pinned(number)]
        for number in numbers:
            if self.in_prefix[number]:
                assert self.num_holders[number] == len(followers[number]) + (self.points[number] > 0)
                assert self.holders[number] == reduce(xor, followers[number], 0)
            is_pinned = [key in self._pinned for key in self.keys[number]]
            assert len(set(is_pinned)) == 1, "a stretch is read as a whole"
            assert self.chunk_slots[number] or self.num_holders[number], "nobody waits for a hole"
        assert self.num_slots == sum(map(self.slots_of, numbers))
        assert self.num_idle_slots == sum(map(self.slots_of, idle))
        unneeded, others = set(self._lists.items(UNNEEDED)), set(self._lists.items(IDLE))
        assert unneeded == {number for number in idle if not self.num_holders[number]}
        assert others == set(idle) - unneeded
