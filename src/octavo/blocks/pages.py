"""The pages of one class: which are free, held or cached, and in what order cached ones are given up.

    state[row]   > 0    held, by that number of holders
                 = 0    free: on `free_rows`, or in a sheet that the class has not leased
                 < 0    cached and held by nobody; it was let go in batch number -state

Rows that are let go together form a batch, under the next number of the pool's clock. The oldest batch goes first,
and of a batch the deepest block: rows stand in the order of their sequence, and leave from the end. A row that is
picked up again stays behind in its batch, where its state no longer says the batch's number; such stale entries are
swept at twice the rate at which entries come in, so they never outnumber the rows by much.

Requests that compute the same block at the same time have a copy each. The index names one that somebody holds as long
as anybody holds one, and no copy is cached beside it: so a block is as old as the last use of any of its copies.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from octavo.ids import BlockHash, GroupIdx, Row

_STALE_ENTRIES_ALLOWED = 1024
_FEW = 4
"""Up to this number of blocks, one at a time is faster than in bulk."""


class ClassPages:
    """The rows of one page class. Hashes are kept here because a row must know, when it goes, what it was."""

    def __init__(
        self,
        *,
        pages_per_sheet: int,
        num_sheets: int,
        indexes: Sequence[dict[BlockHash, Row]],
        groups: Sequence[GroupIdx],
    ) -> None:
        num_rows = pages_per_sheet * num_sheets
        self.pages_per_sheet = pages_per_sheet
        self.state = [0] * num_rows
        self.hash_of: list[BlockHash | None] = [None] * num_rows
        """The hash under which a row stands in its group's index, or is a copy of what stands there; None elsewhere."""
        self.copies: dict[tuple[GroupIdx, BlockHash], list[Row]] = {}
        """(group, hash) -> held rows that are copies of the indexed row, which is held too."""
        self.free_rows: list[Row] = []
        self.leased: set[int] = set()
        self.num_cached = 0
        """Rows that are cached and held by nobody."""
        self._indexes = indexes
        """By group, other classes' too."""
        self._groups = groups
        """Those with pages of this class."""
        self._batches: OrderedDict[int, tuple[GroupIdx, list[Row]]] = OrderedDict()
        """Number -> group and rows, oldest first."""
        self._num_entries = 0
        self._sweep_order: deque[int] = deque()

    @property
    def num_obtainable(self) -> int:
        """Rows that the class can give without another sheet."""
        return len(self.free_rows) + self.num_cached

    def lease(self, sheets: Sequence[int]) -> None:
        """Takes sheets into the class; all their rows are free."""
        k = self.pages_per_sheet
        self.leased.update(sheets)
        if k == 1:
            self.free_rows.extend(cast("Iterator[Row]", reversed(sheets)))
            return
        for sheet in reversed(sheets):
            self.free_rows.extend(reversed(self.rows_of_sheet(sheet)))

    def take_free(self, count: int) -> list[Row]:
        """At most `count` free rows, held once each."""
        if count <= 0:
            return []
        if count == 1 and self.free_rows:
            row = self.free_rows.pop()
            self.state[row] = 1
            return [row]
        rows = self.free_rows[: -count - 1 : -1]
        del self.free_rows[-count:]
        state = self.state
        for row in rows:
            state[row] = 1
        return rows

    def evict(self, count: int) -> Iterator[tuple[GroupIdx, list[Row], list[BlockHash]]]:
        """Takes up to `count` cached rows out of their indexes, oldest first, and holds each once.

        Yields groups with rows and the hashes that they had.
        """
        state, hash_of = self.state, self.hash_of
        while count > 0 and self._batches:
            number = next(iter(self._batches))
            group, batch = self._batches[number]
            rows = batch[: -count - 1 : -1]
            del batch[-count:]
            self._num_entries -= len(rows)
            if not batch:
                del self._batches[number]
            if set(map(state.__getitem__, rows)) != {-number}:
                rows = [row for row in rows if state[row] == -number]
            hashes = self._unindex(group, rows)
            for row in rows:
                state[row] = 1
                hash_of[row] = None
            self.num_cached -= len(rows)
            count -= len(rows)
            yield group, rows, hashes

    def hold(self, rows: Sequence[Row]) -> list[int]:
        """One more holder for each of these rows, none of which is free. Returns their states before."""
        state = self.state
        before = list(map(state.__getitem__, rows))
        if rows and max(before) < 0:
            for row in rows:
                state[row] = 1
            self.num_cached -= len(rows)
            return before
        for row, holders in zip(rows, before, strict=True):
            if holders > 0:
                state[row] = holders + 1
            else:
                state[row] = 1
                self.num_cached -= 1
        return before

    def restore(self, rows: Sequence[Row], before: Sequence[int]) -> None:
        """Puts back the states that rows had before they were held."""
        for row, state in zip(rows, before, strict=True):
            self.state[row] = state
            self.num_cached += state < 0

    def let_go(self, group: GroupIdx, rows: Sequence[Row], number: int) -> None:
        """One holder fewer for each of these rows, which stand in the order of their sequence."""
        if self.copies:
            rows = self._let_go_for_copies(group, rows)
        state, hash_of = self.state, self.hash_of
        mark = -number
        batch: Sequence[Row] = rows
        tail: Sequence[Row] = ()
        if rows and hash_of[rows[-1]] is None:  # the block that was being filled
            batch, tail = rows[:-1], rows[-1:]
        if set(map(state.__getitem__, batch)) == {1} and None not in map(hash_of.__getitem__, batch):
            batch = list(batch)
            for row in batch:
                state[row] = mark
        else:
            batch, tail = [], rows
        for row in tail:
            holders = state[row]
            if holders != 1:
                state[row] = holders - 1
            elif hash_of[row] is None:
                state[row] = 0
                self.free_rows.append(row)
            else:
                state[row] = mark
                batch.append(row)
        if batch:
            self._batches[number] = (group, batch)
            self.num_cached += len(batch)
            self._num_entries += len(batch)
            self._sweep(2 * len(batch))

    def publish(self, group: GroupIdx, rows: Sequence[Row], hashes: Sequence[BlockHash]) -> Sequence[int]:
        """Enters held rows into a group's index; a hash that is there keeps its row if somebody holds that.

        Returns the indices of the hashes that were new.
        """
        rows_of, hash_of = self._indexes[group], self.hash_of
        if len(rows) > _FEW and rows_of.keys().isdisjoint(hashes):
            rows_of.update(zip(hashes, rows, strict=True))
            for row, block_hash in zip(rows, hashes, strict=True):
                hash_of[row] = block_hash
            return range(len(rows))
        new = []
        for index, (row, block_hash) in enumerate(zip(rows, hashes, strict=True)):
            if rows_of.setdefault(block_hash, row) == row:
                hash_of[row] = block_hash
                new.append(index)
            else:
                self._add_copy(group, row, block_hash)
        return new

    def _add_copy(self, group: GroupIdx, row: Row, block_hash: BlockHash) -> None:
        indexed = self._indexes[group][block_hash]
        if self.state[indexed] < 0:
            self._indexes[group][block_hash] = row
            self.forget([indexed])
        else:
            self.copies.setdefault((group, block_hash), []).append(row)
        self.hash_of[row] = block_hash

    def _let_go_for_copies(self, group: GroupIdx, rows: Sequence[Row]) -> list[Row]:
        """Frees those of the rows of which others hold copies, and returns the rest."""
        index, rest = self._indexes[group], []
        for row in rows:
            block_hash = self.hash_of[row]
            copies = self.copies.get((group, block_hash)) if block_hash is not None and self.state[row] == 1 else None
            if block_hash is None or copies is None:
                rest.append(row)
                continue
            if index[block_hash] == row:
                index[block_hash] = copies.pop()
            else:
                copies.remove(row)
            if not copies:
                del self.copies[group, block_hash]
            self.state[row], self.hash_of[row] = 0, None
            self.free_rows.append(row)
        return rest

    def oldest_cached(self) -> tuple[int, Row] | None:
        """(batch number, row) of the row that goes next."""
        while self._batches:
            number = next(iter(self._batches))
            batch = self._batches[number][1]
            while batch and self.state[batch[-1]] != -number:
                batch.pop()
                self._num_entries -= 1
            if batch:
                return number, batch[-1]
            del self._batches[number]
        return None

    def rows_of_sheet(self, sheet: int) -> Sequence[Row]:
        return cast("Sequence[Row]", range(sheet * self.pages_per_sheet, (sheet + 1) * self.pages_per_sheet))

    def held_rows(self, sheet: int) -> list[Row]:
        return [row for row in self.rows_of_sheet(sheet) if self.state[row] > 0]

    def move(self, old: Row, new: Row) -> tuple[GroupIdx, list[BlockHash]] | None:
        """A held row becomes another one, which nobody holds; returns what had been cached there."""
        gone = None
        if self.state[new] < 0:
            group = self._batches[-self.state[new]][0]
            gone = group, self._unindex(group, [new])
            self.num_cached -= 1
        else:
            self.free_rows.remove(new)
        block_hash = self.hash_of[old]
        self.state[new], self.state[old] = self.state[old], 0
        self.hash_of[new], self.hash_of[old] = block_hash, None
        self.free_rows.append(old)
        for group in self._groups:
            index = self._indexes[group]
            if block_hash is not None and index.get(block_hash) == old:
                index[block_hash] = new
            elif block_hash is not None and old in (copies := self.copies.get((group, block_hash), [])):
                copies[copies.index(old)] = new
        return gone

    def age_of_sheet(self, sheet: int) -> int | None:
        """The number of the newest batch with a row in a sheet, 0 for an empty one; None while a row is held."""
        rows = self.rows_of_sheet(sheet)
        states = self.state[rows[0] : rows[-1] + 1]
        return None if max(states) > 0 else -min(states)

    def clear_sheet(self, sheet: int) -> list[tuple[GroupIdx, list[BlockHash]]]:
        """Gives back a sheet none of whose rows is held; returns by group the hashes that went with it."""
        rows_of: dict[GroupIdx, list[Row]] = {}
        rows = self.rows_of_sheet(sheet)
        for row in rows:
            number = -self.state[row]
            if number:
                rows_of.setdefault(self._batches[number][0], []).append(row)
                self.state[row] = 0
                self.num_cached -= 1
        gone = [(group, self._unindex(group, cached)) for group, cached in rows_of.items()]
        for row in rows:
            self.hash_of[row] = None
        self.leased.discard(sheet)
        self.free_rows = [row for row in self.free_rows if row not in rows]
        return gone

    def give_back_empty_sheets(self) -> list[int]:
        """The leased sheets whose rows are all free leave the class."""
        k = self.pages_per_sheet
        free_in: dict[int, int] = {}
        for row in self.free_rows:
            free_in[row // k] = free_in.get(row // k, 0) + 1
        empty = {sheet for sheet, free in free_in.items() if free == k}
        if empty:
            self.leased -= empty
            self.free_rows = [row for row in self.free_rows if row // k not in empty]
        return sorted(empty)

    def forget_group(self, group: GroupIdx) -> None:
        """Empties a group's index. Held rows stay held."""
        self.forget(self._indexes[group].values())
        self._indexes[group].clear()
        for copied in [key for key in self.copies if key[0] == group]:
            self.forget(self.copies.pop(copied))

    def forget(self, rows: Iterable[Row]) -> None:
        """Rows that left their index: nobody finds them any more, and what nobody holds is free."""
        for row in rows:
            self.hash_of[row] = None
            if self.state[row] < 0:
                self.state[row] = 0
                self.num_cached -= 1
                self.free_rows.append(row)

    def _unindex(self, group: GroupIdx, rows: Iterable[Row]) -> list[BlockHash]:
        index = self._indexes[group]
        hashes: list[BlockHash] = list(map(self.hash_of.__getitem__, rows))  # type: ignore[arg-type]
        for block_hash in hashes:
            del index[block_hash]
        return hashes

    def _sweep(self, num_entries: int) -> None:
        """Drops the stale among some entries, going round, while too many are stale."""
        order, batches = self._sweep_order, self._batches
        order.append(next(reversed(batches)))
        while order[0] not in batches:
            order.popleft()
        while num_entries > 0 and self._num_entries > 2 * self.num_cached + _STALE_ENTRIES_ALLOWED:
            number = order.popleft()
            if number not in batches:
                continue
            group, batch = batches[number]
            fresh = [row for row in batch if self.state[row] == -number]
            num_entries -= len(batch)
            self._num_entries -= len(batch) - len(fresh)
            if fresh:
                batches[number] = (group, fresh)
                order.append(number)
            else:
                del batches[number]

    def check_invariants(self) -> None:
        """For tests: every count equals what a scan finds."""
        leased_rows = {row for sheet in self.leased for row in self.rows_of_sheet(sheet)}
        free = set(self.free_rows)
        assert len(free) == len(self.free_rows)
        assert free == {row for row in leased_rows if self.state[row] == 0}
        assert all(not state or row in leased_rows for row, state in enumerate(self.state))
        assert self.num_cached == sum(state < 0 for state in self.state)
        cached = {
            row: number for number, (_, batch) in self._batches.items() for row in batch if self.state[row] == -number
        }
        assert set(cached) == {row for row, state in enumerate(self.state) if state < 0}
        assert self._num_entries == sum(len(batch) for _, batch in self._batches.values())
        assert all(self.hash_of[row] is not None for row in cached)
        assert all(self.hash_of[row] is None for row in free)
        for (group, block_hash), copies in self.copies.items():
            assert copies
            for row in (self._indexes[group][block_hash], *copies):
                assert self.state[row] > 0
                assert self.hash_of[row] == block_hash
