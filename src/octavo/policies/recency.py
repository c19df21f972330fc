"""Keys from the least to the most recently used: every operation in constant time, and no pause at millions of keys.

    oldest                                                      newest
    (a b . d) <-> (. . g) <-> (h i j k) <-> ... <-> (p . r s)   {t u}     sealed runs, linked; and the open run
                                                                          `.`: a blank, its key was used later or went
    entries   key -> number of its run | its slots                        the truth about what is there

A key that is used again moves to the open run, and leaves a blank. A run that is mostly blanks is rewritten, and joined
with a neighbour where both are small, so runs and blanks stay in proportion to the keys. Compared with a linked list of
keys: one dictionary operation per use, and one object per hundred keys for the garbage collector to follow.
"""

from collections.abc import Iterable, Iterator, Sequence

from octavo.policies.sharding import Shards, count_keys, make_shards

RUN_LENGTH = 128
"""The most keys of a run. Bounds what rewriting one costs, and how many blanks lie before the oldest key."""

_SLOT_BITS = 24
MAX_SLOTS = (1 << _SLOT_BITS) - 1
"""The most slots of one key."""


class RecencyOrder:
    """Keys in the order of their last use, each with a number of slots."""

    def __init__(self) -> None:
        self.num_slots = 0
        """Of all keys."""
        self._entries: Shards[int] = make_shards()
        self._runs: dict[int, _Run] = {}
        self._oldest: _Run | None = None
        self._newest: _Run | None = None
        self._open: dict[bytes, None] = {}
        self._open_number = 0

    def __len__(self) -> int:
        return count_keys(self._entries)

    def __iter__(self) -> Iterator[bytes]:
        """In no order."""
        for shard in self._entries:
            yield from shard

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries[key[0]]

    def add(self, key: bytes, num_slots: int) -> None:
        """A new key, as the newest."""
        self._entries[key[0]][key] = self._open_number << _SLOT_BITS | num_slots
        self.num_slots += num_slots
        self._open[key] = None
        if len(self._open) >= RUN_LENGTH:
            self._seal()

    def extend(self, keys: Sequence[bytes], slots: Sequence[int]) -> None:
        """New keys, the last as the newest."""
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
        """The keys among these that are there become the newest, the last the very newest."""
        entries, open_keys, base = self._entries, self._open, self._open_number << _SLOT_BITS
        for key in keys:
            shard = entries[key[0]]
            entry = shard.get(key)
            if entry is None:
                continue
            if entry >= base:
                del open_keys[key]
            else:
                shard[key] = base | entry & MAX_SLOTS
                self._blank(entry >> _SLOT_BITS)
            open_keys[key] = None
            if len(open_keys) >= RUN_LENGTH:
                self._seal()
                open_keys, base = self._open, self._open_number << _SLOT_BITS

    def pop(self, key: bytes) -> int | None:
        """Takes a key out. Its slots, or None if it was not there."""
        entry = self._entries[key[0]].pop(key, None)
        if entry is None:
            return None
        number = entry >> _SLOT_BITS
        if number == self._open_number:
            del self._open[key]
        else:
            self._blank(number)
        num_slots = entry & MAX_SLOTS
        self.num_slots -= num_slots
        return num_slots

    def oldest(self) -> bytes | None:
        """The least recently used key, in at most one run's length of steps."""
        if self._oldest is None:
            return next(iter(self._open), None)
        return next(self._keys_of(self._oldest))

    def pop_oldest(self, num_slots: int) -> tuple[list[bytes], list[int]]:
        """Takes out the oldest keys, until they have at least `num_slots` or all are out: keys and slots."""
        keys: list[bytes] = []
        slots: list[int] = []
        entries = self._entries
        missing = num_slots
        while missing > 0 and (run := self._oldest_sealed()) is not None:
            base, num_before = run.number << _SLOT_BITS, len(keys)
            place = 0
            for place, key in enumerate(run.keys, 1):  # noqa: B007  # where it stopped
                shard = entries[key[0]]
                slots_of_key = shard.get(key, -1) - base
                if not 0 <= slots_of_key <= MAX_SLOTS:
                    continue
                del shard[key]
                keys.append(key)
                slots.append(slots_of_key)
                missing -= slots_of_key
                if missing <= 0:
                    break
            run.live -= len(keys) - num_before
            run.keys = run.keys[place:]
            if run.live * 4 < len(run.keys) or not run.live:
                self._rewrite(run)
        self.num_slots -= num_slots - missing
        return keys, slots

    def check_invariants(self) -> None:
        entries = {key: entry for shard in self._entries for key, entry in shard.items()}
        assert self.num_slots == sum(entry & MAX_SLOTS for entry in entries.values())
        ordered = list(self._open)
        assert all(entries[key] >> _SLOT_BITS == self._open_number for key in ordered)
        run, newer, num_runs = self._newest, None, 0
        while run is not None:
            live = list(self._keys_of(run))
            assert run is self._runs[run.number]
            assert run.newer is newer
            assert len(live) == run.live > 0
            assert len(run.keys) <= min(RUN_LENGTH, 4 * run.live)
            ordered += live
            run, newer, num_runs = run.older, run, num_runs + 1
        assert newer is self._oldest
        assert num_runs == len(self._runs)
        assert len(ordered) == len(entries)

    def _keys_of(self, run: "_Run") -> Iterator[bytes]:
        number, entries = run.number, self._entries
        return (key for key in run.keys if entries[key[0]].get(key, -1) >> _SLOT_BITS == number)

    def _oldest_sealed(self) -> "_Run | None":
        if self._oldest is None and self._open:
            self._seal()
        return self._oldest

    def _seal(self) -> None:
        """The open run becomes the newest sealed one."""
        run = _Run(self._open_number, tuple(self._open), self._newest)
        if self._newest is None:
            self._oldest = run
        else:
            self._newest.newer = run
        self._newest = run
        self._runs[run.number] = run
        self._open = {}
        self._open_number += 1

    def _blank(self, number: int) -> None:
        """One key fewer in a sealed run."""
        run = self._runs[number]
        run.live -= 1
        if run.live * 4 < len(run.keys):
            self._rewrite(run)

    def _rewrite(self, run: "_Run") -> None:
        """Drops a run's blanks, and the run itself where it is empty or fits into a neighbour."""
        if not run.live:
            self._unlink(run)
        elif run.older is not None and run.older.live + run.live <= RUN_LENGTH // 2:
            self._join(run.older, run)
        elif run.newer is not None and run.newer.live + run.live <= RUN_LENGTH // 2:
            self._join(run, run.newer)
        else:
            run.keys = tuple(self._keys_of(run))

    def _join(self, older: "_Run", newer: "_Run") -> None:
        moved = tuple(self._keys_of(newer))
        base = older.number << _SLOT_BITS
        older.keys = (*self._keys_of(older), *moved)
        older.live = len(older.keys)
        for key in moved:
            shard = self._entries[key[0]]
            shard[key] = base | shard[key] & MAX_SLOTS
        self._unlink(newer)

    def _unlink(self, run: "_Run") -> None:
        del self._runs[run.number]
        if run.older is None:
            self._oldest = run.newer
        else:
            run.older.newer = run.newer
        if run.newer is None:
            self._newest = run.older
        else:
            run.newer.older = run.older


class _Run:
    """Keys that were used one after the other, oldest first, blanks among them."""

    __slots__ = ("keys", "live", "newer", "number", "older")

    def __init__(self, number: int, keys: tuple[bytes, ...], older: "_Run | None") -> None:
        self.number = number
        self.keys = keys
        self.live = len(keys)
        self.older = older
        self.newer: _Run | None = None
