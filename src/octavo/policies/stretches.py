"""What a tier holds, in stretches: runs of chunks that are kept and given up for the same reasons.

prefix group   [a0 a1 a2] <- [a3 a4]*        `<-`: holds. A stretch holds the one before it.  `*`: held by a point too
                          <- [b3]*           where two sequences part, a stretch ends
window group   [w0] [w1] [w2 w3]*            linked too, so that a point finds its window, but no stretch holds another

held       by points that need it, or by the stretches that follow
unneeded   held by nothing: the first to be given up; then the stretch before may be unneeded, and so on
pinned     all of it is being read. A stretch of which a part is, is cut
hole       held, and not there: one chunk that was removed, or has not arrived. It heals when it is inserted
"""

from collections.abc import Iterator, Mapping, Sequence

from octavo.chunks import OffloadKey, StoredChunk
from octavo.policies.pinned import PinnedChunks
from octavo.policies.stretch_columns import Links, StretchColumns
from octavo.tables import LinkedLists, Part

MOST_CHUNKS = 64
"""The most chunks of one stretch, which bounds the work of a cut."""
_UNNEEDED, _IDLE, _NUM_LISTS = 0, 1, 2


class StretchTable(StretchColumns):
    """The stretches of a tier, their holders, and whether they are read."""

    def __init__(self, links: Mapping[bytes, Links]) -> None:
        """`links`: by the last four bytes of a key, which name its group."""
        super().__init__(links, first_number=_NUM_LISTS)
        self._lists = LinkedLists(_NUM_LISTS)
        """One list of unneeded stretches, and one of all other idle stretches, the longest idle first."""
        self._pinned = PinnedChunks()
        self._changed: set[int] = set()
        self.num_idle_slots = 0

    def parts(self) -> Sequence[Part]:
        return [*self._numbers.parts(), *self._pinned.parts(), self.keys, self.parents]

    def _new_number(self) -> int:
        number = super()._new_number()
        if number == self._lists.size:
            self._lists.grow()
        return number

    # ---- coming ------------------------------------------------------------------------------------------------

    def insert(self, chunks: Sequence[StoredChunk]) -> list[int]:
        """Makes stretches of these chunks, or fills the holes that wait for them. Returns the numbers of the
        stretches."""
        numbers: list[int] = []
        shards = self._numbers.shards
        start = end = num_slots = 0
        last_key: bytes | None = None
        for index, (key, slots, _, parent) in enumerate(chunks):
            if index >= end or parent != last_key or slots != num_slots or key in shards[key[0]]:
                if index:
                    numbers.append(self._enter(chunks[start:index]))
                start, num_slots = index, slots
                is_single = self._links[key[-4:]] is Links.NONE or key in shards[key[0]]
                end = index + (1 if is_single else MOST_CHUNKS)
            last_key = key
        if chunks:
            numbers.append(self._enter(chunks[start:]))
        return numbers

    def _enter(self, chunks: Sequence[StoredChunk]) -> int:
        first = chunks[0]
        hole = self._numbers.get(first.key)
        if hole:
            number = hole
        else:
            number = self._new_number()
            self.keys[number] = tuple([chunk[0] for chunk in chunks])
            shards = self._numbers.shards
            for key in self.keys[number]:
                shards[key[0]][key] = number
        links = self._links[first.key[-4:]]
        self.parents[number] = None if links is Links.NONE else first.parent
        self.chunk_slots[number], self.starts[number] = first.num_slots, first.position
        self.num_idle_slots += self.slots_of(number)
        self._lists.append(_IDLE if self.num_holders[number] else _UNNEEDED, number)
        if links is Links.PREFIX and first.parent is not None:
            self._hold_parent(first.parent, number)
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
        before = self.cut_after(parent) if self._numbers.get(parent) else self._new_hole(parent)
        self.hold(before, number)

    def _new_hole(self, key: OffloadKey) -> int:
        number = self._new_number()
        self.keys[number], self.parents[number] = (key,), None
        self.chunk_slots[number] = 0
        self._numbers[key] = number
        return number

    # ---- cutting -----------------------------------------------------------------------------------------------

    def cut_after(self, key: OffloadKey) -> int:
        """The stretch that ends with this chunk, which must be there."""
        number = self._numbers.get(key)
        keys = self.keys[number]
        return number if keys[-1] == key else self._cut(number, keys.index(key) + 1)

    def cut_last(self, number: int, num_chunks: int) -> int:
        """A stretch of the last chunks of this one, at most `num_chunks`."""
        if len(self.keys[number]) > num_chunks:
            self._cut(number, len(self.keys[number]) - num_chunks)
        return number

    def has_run(self, key: OffloadKey | None, count: int) -> bool:
        """Whether the last `count` chunks up to this one are there."""
        while count > 0:
            number = 0 if key is None else self._numbers.get(key)
            if key is None or not number or not self.chunk_slots[number]:
                return False
            count -= self.keys[number].index(key) + 1
            key = self.parents[number]
        return True

    def cut_run(self, key: OffloadKey, count: int) -> Iterator[int]:
        """The stretches of exactly these chunks. A run that was there once is found again while it is held."""
        end: OffloadKey | None = key
        while count > 0 and end is not None:
            number = self.cut_last(self.cut_after(end), count)
            count -= len(self.keys[number])
            end = self.parents[number]
            yield number

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
        if self.is_prefix(upper):
            self.num_holders[lower], self.holders[lower] = 1, upper
            before = self.before(lower)
            if before:
                self.holders[before] ^= upper ^ lower
        else:
            self.num_holders[lower], self.holders[lower] = self.num_holders[upper], self.holders[upper]
        if upper in self._lists:
            is_unneeded = not self.num_holders[lower]
            self._lists.append(_UNNEEDED if is_unneeded else _IDLE, lower)
        return lower

    # ---- holders -----------------------------------------------------------------------------------------------

    def add_point(self, number: int, point: int) -> None:
        """A point ends with this stretch of a prefix group, and holds it."""
        self.points[number] = point
        self._count_holder(number, self.holders[number])

    def remove_point(self, number: int) -> None:
        self.points[number] = 0
        self._uncount_holder(number)

    def hold(self, number: int, holder: int) -> None:
        """Adds a holder: in a prefix group a stretch that follows, else a point."""
        other = self.holders[number]
        self.holders[number] = other ^ holder
        self._count_holder(number, other)

    def release(self, number: int, holder: int) -> None:
        """Removes a holder, which `hold` added."""
        self.holders[number] ^= holder
        self._uncount_holder(number)

    def _count_holder(self, number: int, other: int) -> None:
        self.num_holders[number] += 1
        if self.num_holders[number] == 1:
            self._relist(number)
            self._note_change(number)
        elif self.num_holders[number] == 2:
            if not self.is_prefix(number):
                self._changed.add(other)
            else:
                self._changed.add(self.points[number] if not other else self.point_above(other))

    def _uncount_holder(self, number: int) -> None:
        self.num_holders[number] -= 1
        if self.num_holders[number]:
            self._note_change(number)
        elif self.chunk_slots[number]:
            self._relist(number)
        else:
            self._forget(number)

    def _note_change(self, number: int) -> None:
        """Notes that the point which alone holds this stretch may now hold more or less for itself."""
        if self.num_holders[number] == 1:
            self._changed.add(self.point_above(number) if self.is_prefix(number) else self.holders[number])

    def take_changed(self) -> set[int]:
        """Points that hold more or less for themselves than at the last call."""
        changed, self._changed = self._changed, set()
        changed.discard(0)
        return changed

    def _relist(self, number: int) -> None:
        """Puts a stretch that nobody holds any more at the front: it goes first."""
        if number in self._lists:
            self._lists.remove(number)
            if self.num_holders[number]:
                self._lists.append(_IDLE, number)
            else:
                self._lists.prepend(_UNNEEDED, number)

    # ---- readers -----------------------------------------------------------------------------------------------

    def is_pinned(self, number: int) -> bool:
        return self.keys[number][-1] in self._pinned

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
            self._lists.append(_IDLE if self.num_holders[number] else _UNNEEDED, number)
            self.num_idle_slots += self.slots_of(number)
        elif was_idle and not is_idle:
            self._lists.remove(number)
            self.num_idle_slots -= self.slots_of(number)

    # ---- going -------------------------------------------------------------------------------------------------

    def pop_unneeded(self, num_slots: int, victims: list[OffloadKey]) -> int:
        """Gives up unneeded chunks, and those that become unneeded thereby, the last of a stretch first, until
        `num_slots` are free or none is left. Returns the slots that become free."""
        freed = 0
        while freed < num_slots and (number := self._lists.first(_UNNEEDED)) is not None:
            freed += self.take_last(number, num_slots - freed, victims)
        return freed

    def is_unneeded(self, number: int) -> bool:
        return number in self._lists and not self.num_holders[number]

    def take_last(self, number: int, num_slots: int, victims: list[OffloadKey]) -> int:
        """The same for one unneeded stretch."""
        keys, chunk_slots = self.keys[number], self.chunk_slots[number]
        count = min(len(keys), -(-num_slots // chunk_slots))
        victims += keys[: -count - 1 : -1]
        shards = self._numbers.shards
        for key in keys[len(keys) - count :]:
            del shards[key[0]][key]
        self.num_idle_slots -= count * chunk_slots
        if count < len(keys):
            self.keys[number] = keys[:-count]
        else:
            self._forget(number, is_indexed=False)
        return count * chunk_slots

    def pop_idle(self, victims: list[OffloadKey]) -> int:
        """The last resort, when every idle chunk hangs on a chunk that is read: takes one chunk, and leaves a hole.
        Returns the slots that become free."""
        number = self._lists.first(_IDLE)
        assert number is not None, "something is idle"
        key, num_slots = self.keys[number][-1], self.chunk_slots[number]
        victims.append(key)
        self.remove(key)
        return num_slots

    def remove(self, key: OffloadKey) -> None:
        """The chunk is gone. While it is held it is a hole."""
        number = self.cut_last(self.cut_after(key), 1)
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
        if self.is_prefix(number):
            before, self.parents[number] = self.before(number), None
            if before:
                self.release(before, number)

    def _forget(self, number: int, *, is_indexed: bool = True) -> None:
        """Forgets a stretch that nobody holds."""
        before = self.before(number) if self.is_prefix(number) else 0
        if is_indexed:
            for key in self.keys[number]:
                self._numbers.pop(key)
        self._lists.remove(number)
        self.keys[number], self.parents[number] = (), None
        self.chunk_slots[number] = 0
        self._free.append(number)
        if before:
            self.release(before, number)

    # ---- for tests ---------------------------------------------------------------------------------------------

    def numbers(self) -> set[int]:
        return {number for _, number in self._numbers.items()}

    def check_invariants(self) -> None:
        self._lists.check_invariants()
        numbers = self.numbers()
        assert all(self._numbers.get(key) == number for number in numbers for key in self.keys[number])
        assert len(self._numbers) == sum(len(self.keys[number]) for number in numbers)
        assert not numbers & set(self._free)
        followers: dict[int, list[int]] = {number: [] for number in numbers}
        for number in numbers:
            if self.is_prefix(number) and self.before(number):
                assert self.parents[number] == self.keys[self.before(number)][-1]
                followers[self.before(number)].append(number)
        idle = [number for number in numbers if self.chunk_slots[number] and not self.is_pinned(number)]
        for number in numbers:
            if self.is_prefix(number):
                assert self.num_holders[number] == len(followers[number]) + (self.points[number] > 0)
                assert self.holders[number] == _xor(followers[number])
            is_pinned = [key in self._pinned for key in self.keys[number]]
            assert len(set(is_pinned)) == 1, "a stretch is read as a whole"
            assert self.chunk_slots[number] or self.num_holders[number], "nobody waits for a hole"
        assert self.num_idle_slots == sum(map(self.slots_of, idle))
        unneeded, others = set(self._lists.items(_UNNEEDED)), set(self._lists.items(_IDLE))
        assert unneeded == {number for number in idle if not self.num_holders[number]}
        assert others == set(idle) - unneeded


def _xor(numbers: Sequence[int]) -> int:
    total = 0
    for number in numbers:
        total ^= number
    return total
