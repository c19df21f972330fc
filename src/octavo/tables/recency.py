"""Keys from the least to the most recently used: every operation in constant time, and no pause at millions of keys.

    oldest                                                      newest
    (a b . d) <-> (. . g) <-> (h i j k) <-> ... <-> (p . r s)   {t u}     sealed runs, linked; and the open run
                                                                          `.`: a blank, its key was used later or went
    entries   key -> number of its run | its slots                        the truth about what is there

A key that is used again moves to the open run, and leaves a blank. A run that is mostly blanks is rewritten, and joined
with a neighbour where both are small, so runs and blanks stay in proportion to the keys. Compared with a linked list of
keys: one dictionary operation per use, and nothing but the list of runs for the garbage collector to follow. A run is a
dictionary because the collector never looks into one of bytes, while it looks at each key of a new tuple; what else is
known about runs lies in dictionaries of numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice

from octavo.tables.discards import Part
from octavo.tables.sharding import ShardedDict

RUN_LENGTH = 170
"""The most keys of a run: a dictionary with room for 256 takes 170. It bounds the cost of rewriting a run, and the
number of blanks before the oldest key."""

_SLOT_BITS = 24
MAX_SLOTS = (1 << _SLOT_BITS) - 1
"""The most slots of one key."""

_NONE = -1
"""In place of a run's neighbour: there is none."""


class RecencyTable:
    """The run of each key, for orders that share it. A key is in one order at a time; moving it takes one lookup."""

    def __init__(self) -> None:
        self.entries = ShardedDict(_NONE)
        """Key -> the number of its run, and its slots."""
        self.run_numbers = count()

    def parts(self) -> Sequence[Part]:
        return self.entries.shards


class RecencyOrder:
    """Keys in the order of their last use, each with a number of slots."""

    def __init__(self, table: RecencyTable | None = None) -> None:
        table = table or RecencyTable()
        self.num_slots = 0
        """The slots of all keys."""
        self._entries = table.entries.shards
        self._run_numbers = table.run_numbers
        self._runs: dict[int, dict[bytes, None]] = {}
        """The sealed runs' keys, oldest first, blanks among them."""
        self._live: dict[int, int] = {}
        """The number of keys in each run that are not blanks."""
        self._older: dict[int, int] = {}
        self._newer: dict[int, int] = {}
        self._oldest = self._newest = _NONE
        self._open: dict[bytes, None] = {}
        self._open_number = next(self._run_numbers)

    def __len__(self) -> int:
        return len(self._open) + sum(self._live.values())

    def __iter__(self) -> Iterator[bytes]:
        """All keys, in no order."""
        for number in self._runs:
            yield from self._keys_of(number)
        yield from self._open

    def parts(self) -> Sequence[Part]:
        """The containers of the order, without its table."""
        return [*self._runs.values(), self._open]

    def __contains__(self, key: bytes) -> bool:
        number = self._entries[key[0]].get(key, _NONE) >> _SLOT_BITS
        return number == self._open_number or number in self._live

    def add(self, key: bytes, num_slots: int) -> None:
        """Adds a new key as the newest."""
        self._entries[key[0]][key] = self._open_number << _SLOT_BITS | num_slots
        self.num_slots += num_slots
        self._open[key] = None
        if len(self._open) >= RUN_LENGTH:
            self._seal()

    def extend(self, keys: Sequence[bytes], slots: Sequence[int]) -> None:
        """Adds new keys; the last becomes the newest."""
        entries, start = self._entries, 0
        self.num_slots += sum(slots)
        while start < len(keys):
            stop = start + RUN_LENGTH - len(self._open)
            part = keys[start:stop]
            self._open.update(dict.fromkeys(part))
            base, num_slots_before, entry = self._open_number << _SLOT_BITS, -1, 0
            for key, num_slots in zip(part, slots[start:stop], strict=True):
                if num_slots != num_slots_before:  # equal entries are one object
                    num_slots_before, entry = num_slots, base | num_slots
                entries[key[0]][key] = entry
            if len(self._open) >= RUN_LENGTH:
                self._seal()
            start = stop

    def renew(self, keys: Iterable[bytes]) -> None:
        """Makes those of these keys that are there the newest; the last of them becomes the very newest."""
        entries, runs, live = self._entries, self._runs, self._live
        open_keys, open_number = self._open, self._open_number
        for key in keys:
            shard = entries[key[0]]
            entry = shard.get(key, _NONE)
            number = entry >> _SLOT_BITS
            if number == open_number:
                del open_keys[key]
            elif number in live:
                shard[key] = open_number << _SLOT_BITS | entry & MAX_SLOTS
                left = live[number] = live[number] - 1  # as in `_blank`
                if left * 4 < len(runs[number]):
                    self._rewrite(number)
            else:
                continue
            open_keys[key] = None
            if len(open_keys) >= RUN_LENGTH:
                self._seal()
                open_keys, open_number = self._open, self._open_number

    def pop(self, key: bytes) -> int | None:
        """Takes a key out, and returns its slots; None if it was not there."""
        shard = self._entries[key[0]]
        entry = shard.get(key, _NONE)
        number = entry >> _SLOT_BITS
        if number == self._open_number:
            del shard[key]
            del self._open[key]
        elif number in self._live:
            del shard[key]
            self._blank(number)
        else:
            return None
        num_slots = entry & MAX_SLOTS
        self.num_slots -= num_slots
        return num_slots

    def drop(self, keys: Iterable[bytes]) -> None:
        """Takes out those of these keys that are there, where few of many are."""
        entries = self._entries
        for key in keys:
            if key in entries[key[0]]:
                self.pop(key)

    def oldest(self) -> bytes | None:
        """The least recently used key, in at most one run's length of steps."""
        if self._oldest == _NONE:
            return next(iter(self._open), None)
        return next(self._keys_of(self._oldest))

    def pop_oldest(self, num_slots: int) -> tuple[list[bytes], list[int]]:
        """Takes out the oldest keys until they have at least `num_slots`, or all are out: keys and slots."""
        keys: list[bytes] = []
        slots: list[int] = []
        entries = self._entries
        for number, taken, slots_of_taken in self._take_oldest(num_slots):
            if number is not None:
                self._unlink(number)
            for key in taken:
                del entries[key[0]][key]
            keys += taken
            slots += slots_of_taken
        return keys, slots

    def move_oldest(self, num_slots: int, to: "RecencyOrder") -> tuple[list[bytes], list[int]]:
        """The same, but the keys become the newest of another order of this table."""
        keys: list[bytes] = []
        slots: list[int] = []
        for number, taken, slots_of_taken in self._take_oldest(num_slots):
            if number is not None:
                run = self._runs[number]
                self._unlink(number)
                to._adopt(number, run, sum(slots_of_taken), len(taken))  # noqa: SLF001 - an order like this one
            else:
                to.extend(taken, slots_of_taken)
            keys += taken
            slots += slots_of_taken
        return keys, slots

    def _take_oldest(self, num_slots: int) -> Iterator[tuple[int | None, list[bytes], list[int]]]:
        """The oldest keys with their slots, run by run. The caller must unlink a whole run, which comes with its
        number. Keys of a partial run are in no run any more. The caller must update the entries of all."""
        missing = num_slots
        while missing > 0 and (number := self._oldest_sealed()) != _NONE:
            whole = self._whole_run(number, missing)
            keys, slots = whole or self._take_part(number, missing)
            taken = sum(slots)
            missing -= taken
            self.num_slots -= taken
            yield number if whole else None, keys, slots

    def _whole_run(self, number: int, most_slots: int) -> tuple[list[bytes], list[int]] | None:
        """The keys of a run and their slots, if they have no more than `most_slots`."""
        live, run = self._live[number], self._runs[number]
        if live > most_slots:
            return None
        entries, base, keys = self._entries, number << _SLOT_BITS, list(run)
        slots = [entries[key[0]].get(key, _NONE) - base for key in keys]
        if live < len(run):
            keys = [key for key, num_slots in zip(keys, slots, strict=True) if 0 <= num_slots <= MAX_SLOTS]
            slots = [num_slots for num_slots in slots if 0 <= num_slots <= MAX_SLOTS]
        return (keys, slots) if sum(slots) <= most_slots else None

    def _take_part(self, number: int, num_slots: int) -> tuple[list[bytes], list[int]]:
        """The first keys of a run that together have at least `num_slots` slots; the run must have that many."""
        keys: list[bytes] = []
        slots: list[int] = []
        entries, base, run = self._entries, number << _SLOT_BITS, self._runs[number]
        index = 0
        for index, key in enumerate(run, 1):  # noqa: B007  # where it stopped
            slots_of_key = entries[key[0]].get(key, _NONE) - base
            if not 0 <= slots_of_key <= MAX_SLOTS:
                continue
            keys.append(key)
            slots.append(slots_of_key)
            num_slots -= slots_of_key
            if num_slots <= 0:
                break
        self._runs[number] = dict.fromkeys(islice(run, index, None))
        self._blank(number, len(keys))
        return keys, slots

    def _adopt(self, number: int, run: dict[bytes, None], num_slots: int, num_keys: int) -> None:
        """Makes a run of another order of the table the newest; its entries stay as they are."""
        if self._open:
            self._seal()
        self.num_slots += num_slots
        self._append(number, run, num_keys)

    def check_invariants(self) -> None:
        entries = {key: self._entries[key[0]][key] for key in self}
        assert self.num_slots == sum(entry & MAX_SLOTS for entry in entries.values())
        ordered = list(self._open)
        assert all(entries[key] >> _SLOT_BITS == self._open_number for key in ordered)
        number, newer = self._newest, _NONE
        numbers = []
        while number != _NONE:
            live = list(self._keys_of(number))
            assert self._newer[number] == newer
            assert len(live) == self._live[number] > 0
            assert len(self._runs[number]) <= min(RUN_LENGTH, 4 * len(live))
            ordered += live
            numbers.append(number)
            number, newer = self._older[number], number
        assert newer == self._oldest
        assert set(numbers) == set(self._runs) == set(self._live) == set(self._older) == set(self._newer)
        assert len(ordered) == len(entries)

    def _keys_of(self, number: int) -> Iterator[bytes]:
        entries = self._entries
        return (key for key in self._runs[number] if entries[key[0]].get(key, _NONE) >> _SLOT_BITS == number)

    def _oldest_sealed(self) -> int:
        if self._oldest == _NONE and self._open:
            self._seal()
        return self._oldest

    def _seal(self) -> None:
        """Makes the open run the newest sealed one."""
        self._append(self._open_number, self._open, len(self._open))
        self._open = {}
        self._open_number = next(self._run_numbers)

    def _append(self, number: int, run: dict[bytes, None], num_keys: int) -> None:
        self._runs[number] = run
        self._live[number] = num_keys
        self._link(self._newest, number)
        self._link(number, _NONE)

    def _blank(self, number: int, count: int = 1) -> None:
        """Notes that a sealed run has fewer keys."""
        live = self._live[number] = self._live[number] - count
        if live * 4 < len(self._runs[number]) or not live:
            self._rewrite(number)

    def _rewrite(self, number: int) -> None:
        """Drops a run's blanks, and the run itself where it is empty or fits into a neighbour."""
        live, older, newer = self._live[number], self._older[number], self._newer[number]
        if not live:
            self._unlink(number)
        elif self._live.get(older, RUN_LENGTH) + live <= RUN_LENGTH // 2:
            self._join(older, number)
        elif self._live.get(newer, RUN_LENGTH) + live <= RUN_LENGTH // 2:
            self._join(number, newer)
        else:
            self._runs[number] = dict.fromkeys(self._keys_of(number))

    def _join(self, older: int, newer: int) -> None:
        moved = list(self._keys_of(newer))
        self._runs[older] = dict.fromkeys((*self._keys_of(older), *moved))
        self._live[older] = len(self._runs[older])
        for key in moved:
            shard = self._entries[key[0]]
            shard[key] = older << _SLOT_BITS | shard[key] & MAX_SLOTS
        self._unlink(newer)

    def _unlink(self, number: int) -> None:
        del self._runs[number], self._live[number]
        self._link(self._older.pop(number), self._newer.pop(number))

    def _link(self, older: int, newer: int) -> None:
        """Makes two runs neighbours, or one the end of the order."""
        if older == _NONE:
            self._oldest = newer
        else:
            self._newer[older] = newer
        if newer == _NONE:
            self._newest = older
        else:
            self._older[newer] = older
