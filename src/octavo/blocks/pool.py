"""The block pool: sheets leased to page classes, and the prefix index of every group.

Pages are taken, in this order, from the free pages of the class's sheets; from free sheets; from another class's
oldest sheet, when all in it is older than what the class itself would give up; from the class's own cached pages,
oldest first; and last from any sheet of another class that nobody holds.

Every class can always reach the sheets of one longest request: nobody leases or clears a sheet that another class
would then lack. So one request alone always runs to its end, however pages lie.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from octavo.blocks.pages import ClassPages
from octavo.chunks import Departures, Leaving, make_offload_key
from octavo.errors import InputError
from octavo.events import CacheChanges, StepEvents, StoredRun
from octavo.ids import BlockHash, GroupIdx, Row, enumerate_groups
from octavo.planning import KVCacheConfig, blocks_of_request
from octavo.specs import CachedSequence, ceil_div

MEDIUM_DEVICE = "device"
_RULE = "the oldest go first"
_PAGES_LEASED_AHEAD = 64
_SHARE_LEASED_AHEAD = 16
"""Of the sheets that a class may lease, at most one in 16 is leased ahead."""

UndoHold = tuple[GroupIdx, Sequence[Row], list[int]]
"""Group, rows, and their states before they were held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassUsage:
    """How the pages of one class are used now."""

    leased_sheets: int
    held_pages: int
    cached_pages: int
    free_pages: int
    """Free pages of leased sheets: what fragmentation costs."""


class BlockPool:
    """Who has which page. Block ids are rows of the class's view of the pool."""

    def __init__(self, config: KVCacheConfig, *, logs_changes: bool = False) -> None:
        self.config = config
        self.indexes: list[dict[BlockHash, Row]] = [{} for _ in config.groups]
        self.classes = [
            ClassPages(
                pages_per_sheet=cls.pages_per_sheet,
                num_sheets=config.num_sheets,
                indexes=self.indexes,
                groups=[index for index, group in enumerate_groups(config.groups) if group.page_class == page_class],
            )
            for page_class, cls in enumerate(config.page_classes)
        ]
        self.free_sheets = list(range(config.num_sheets - 1, -1, -1))
        self.reserved_sheets = config.sheets_by_class(blocks_of_request(config, config.limits.max_model_len))
        self.epoch = 0
        """Changes whenever a block leaves an index or changes its row."""
        self.generation = 0
        """Changes when everything is forgotten."""
        self._has_moved_blocks = False
        """Since the last `take_changes`, so that rows in the log may be old."""
        self.rules = [group.spec.rule for group in config.groups]
        """By group: the spec that says what a resume needs."""
        prefixes = [index for index, rule in enumerate_groups(self.rules) if rule.needs_whole_prefix]
        is_decoder_only = all(rule.indexes_decoder_tokens for rule in self.rules)
        self.first_prefix_group = prefixes[0] if prefixes and is_decoder_only else None
        """Without this group's first block nothing of a request is there; None where other groups may have some."""
        self._pages_of = [self.classes[group.page_class or 0] for group in config.groups]
        self._clock = 0
        self._events = StepEvents(len(config.groups)) if logs_changes else None
        self.departures: Departures | None = None
        """Is told what is evicted, if somebody wants to know."""

    def can_take(self, counts: Sequence[int]) -> bool:
        """Whether `counts` pages of each class can be had at once."""
        if self._is_obtainable(counts):
            return True
        self._collect_empty_sheets()
        short = self.num_sheets_short(counts)
        return short <= 0 or short <= sum(
            len(self._clearable_sheets(index, counts[index])) for index in range(len(self.classes))
        )

    def num_sheets_short(self, counts: Sequence[int]) -> int:
        """Sheets that classes must lose before others can lease what they lack for `counts` pages."""
        return self._num_short(self._missing_sheets(counts))

    def move_and_give_back(self, page_class: int, new_row: Mapping[Row, Row], sheets: Sequence[int]) -> None:
        """Held rows become others of their class, and the sheets that this empties are free."""
        pages = self.classes[page_class]
        self._note_moves()
        for old, new in new_row.items():
            gone = pages.move(old, new)
            if gone is not None:
                self._note_removal(*gone)
        for sheet in sheets:
            self._clear(page_class, sheet)

    def take(self, counts: Sequence[int]) -> list[list[Row]]:
        """`counts` pages of each class, held once each. The caller has asked `can_take`."""
        self._lease_what_is_missing(counts)  # first, while the sheets are as `can_take` saw them
        taken = [pages.take_free(count) for pages, count in zip(self.classes, counts, strict=True)]
        wanted = [count - len(rows) for count, rows in zip(counts, taken, strict=True)]
        for index, pages in enumerate(self.classes):
            if wanted[index]:
                taken[index] += self._take_from_sheets_or_cache(pages, index, wanted)
                wanted[index] = 0
        return taken

    def hold(self, group_idx: GroupIdx, rows: Sequence[Row]) -> None:
        """One more holder for each of these rows."""
        self._pages_of[group_idx].hold(rows)

    def hold_undoably(self, group_idx: GroupIdx, rows: Sequence[Row]) -> UndoHold:
        """`hold`, and what `undo_holds` needs to make it unhappen, place in the order of eviction included."""
        return group_idx, rows, self._pages_of[group_idx].hold(rows)

    def undo_holds(self, undo: Sequence[UndoHold]) -> None:
        """Undoes holds, given nothing was taken or let go in between."""
        for group_idx, rows, before in reversed(undo):
            self._pages_of[group_idx].restore(rows, before)

    def let_go(self, group_idx: GroupIdx, rows: Sequence[Row]) -> None:
        """One holder fewer for rows of one group, in the order of their sequence."""
        self._clock += 1
        pages = self._pages_of[group_idx]
        if pages.copies:
            self._note_moves()
        pages.let_go(group_idx, rows, self._clock)

    def is_writable(self, group_idx: GroupIdx, row: Row) -> bool:
        """Whether nobody else reads a held row, now or by finding it."""
        pages = self._pages_of[group_idx]
        return pages.state[row] == 1 and pages.hash_of[row] is None

    def publish(
        self, group_idx: GroupIdx, sequence: CachedSequence, blocks: Sequence[int], rows: Sequence[Row]
    ) -> None:
        """Enters full blocks into the group's index; a hash that is there keeps its row if somebody holds that."""
        hashes = sequence.hashes(group_idx)
        if sequence.generation != self.generation or not hashes or not rows:
            return
        own = hashes[blocks.start : blocks.stop] if isinstance(blocks, range) else [hashes[b] for b in blocks]
        pages = self._pages_of[group_idx]
        new = pages.publish(group_idx, rows, own)
        if len(new) < len(rows):
            self._note_moves()
            blocks, rows, own = [blocks[i] for i in new], [rows[i] for i in new], [own[i] for i in new]
        if self._events is not None and new:
            self._events.stored(
                StoredRun(
                    group_idx=group_idx,
                    sequence=sequence,
                    blocks=blocks,
                    hashes=own,
                    rows=rows,
                    parent_hash=hashes[blocks[0] - 1] if blocks[0] else None,
                )
            )

    def forget_everything(self) -> None:
        """Empties every index. Held pages stay held; those who hold them publish nothing any more."""
        self.generation += 1
        for group_idx, _ in enumerate_groups(self.indexes):
            self.forget_group(group_idx)
        if self._events is not None:
            self._events.cleared()
        if self.departures is not None:
            self.departures.clear()

    def forget_group(self, group_idx: GroupIdx) -> None:
        """Empties one group's index. Held pages stay held."""
        self._note_removal(group_idx, list(self.indexes[group_idx]))
        self._pages_of[group_idx].forget_group(group_idx)

    def take_changes(self) -> CacheChanges:
        """The net effect on the indexes since the last call, with the rows where blocks lie now."""
        if self._events is None:
            raise InputError("this manager was made without enable_events")
        changes = self._events.take()
        if self._has_moved_blocks:
            self._has_moved_blocks = False
            stored = [replace(s, rows=[self.indexes[s.group_idx][h] for h in s.hashes]) for s in changes.stored]
            changes = replace(changes, stored=tuple(stored))
        return changes

    def usage(self) -> tuple[ClassUsage, ...]:
        """How the pages of each class are used now."""
        return tuple(
            ClassUsage(
                leased_sheets=len(pages.leased),
                held_pages=len(pages.leased) * pages.pages_per_sheet - pages.num_obtainable,
                cached_pages=pages.num_cached,
                free_pages=len(pages.free_rows),
            )
            for pages in self.classes
        )

    def _is_obtainable(self, counts: Sequence[int]) -> bool:
        """Whether each class has its count of pages without another sheet, free ones and cached ones."""
        for pages, count in zip(self.classes, counts, strict=True):  # no generator: it is hot
            if count > len(pages.free_rows) + pages.num_cached:
                return False
        return True

    def _missing_sheets(self, counts: Sequence[int]) -> list[int]:
        """Sheets that each class lacks for `counts` pages even when it gives up all that it has cached."""
        return [
            max(0, ceil_div(count - pages.num_obtainable, pages.pages_per_sheet))
            for count, pages in zip(counts, self.classes, strict=True)
        ]

    def _num_short(self, missing: Sequence[int]) -> int:
        """Sheets that must become free before classes can lease what is missing and leave others' reserves alone."""
        return sum(missing) + self._deficits(missing) - len(self.free_sheets)

    def _deficits(self, about_to_lease: Sequence[int]) -> int:
        """Sheets that must stay free for the classes that have not leased their reserve."""
        return sum(
            max(0, reserve - len(pages.leased) - more)
            for reserve, pages, more in zip(self.reserved_sheets, self.classes, about_to_lease, strict=True)
        )

    def _num_leasable(self, page_class: int) -> int:
        """Free sheets that a class may lease without touching another's reserve."""
        more = [0] * len(self.classes)
        more[page_class] = len(self.free_sheets)
        return max(0, len(self.free_sheets) - self._deficits(more))

    def _collect_empty_sheets(self) -> None:
        for pages in self.classes:
            if len(pages.free_rows) >= pages.pages_per_sheet:
                self.free_sheets.extend(pages.give_back_empty_sheets())

    def _lease_what_is_missing(self, wanted: Sequence[int]) -> None:
        """Leases sheets that classes cannot do without; clears others' where no free ones may be leased."""
        if self._is_obtainable(wanted):
            return
        missing = self._missing_sheets(wanted)
        if self._num_short(missing) > 0:
            self._collect_empty_sheets()
        while self._num_short(missing) > 0:
            page_class, sheet = next(
                (index, candidates[0])
                for index in range(len(self.classes))
                if (candidates := self._clearable_sheets(index, wanted[index]))
            )
            self._clear(page_class, sheet)
        for index, sheets in enumerate(missing):
            self._lease(index, sheets)
        for index, sheets in enumerate(missing):
            if sheets:
                self._lease_ahead(index)

    def _take_from_sheets_or_cache(self, pages: ClassPages, page_class: int, wanted: Sequence[int]) -> list[Row]:
        """Pages for a class that can do without more sheets, and gets some all the same where they cost less."""
        count = wanted[page_class]
        sheets = ceil_div(count, pages.pages_per_sheet)
        leasable = 0
        if self.free_sheets:
            leasable = min(sheets, self._num_leasable(page_class))
            self._lease(page_class, leasable)
            self._lease_ahead(page_class)
        while leasable < sheets and (victim := self._older_sheet_of_another(page_class, wanted)) is not None:
            self._clear(*victim)
            self._lease(page_class, 1)
            leasable += 1
        rows = pages.take_free(count) if pages.free_rows else []
        for group, evicted, hashes in pages.evict(count - len(rows)):
            rows += evicted
            self._note_removal(group, hashes)
        assert len(rows) == count
        return rows

    def _lease_ahead(self, page_class: int) -> None:
        """While sheets are plenty, leases some more: one at a time, each would cost as much as all."""
        pages_ahead = ceil_div(_PAGES_LEASED_AHEAD, self.classes[page_class].pages_per_sheet)
        self._lease(page_class, min(pages_ahead, self._num_leasable(page_class) // _SHARE_LEASED_AHEAD))

    def _lease(self, page_class: int, sheets: int) -> None:
        if sheets:
            self.classes[page_class].lease(self.free_sheets[: -sheets - 1 : -1])
            del self.free_sheets[-sheets:]

    def num_spare_sheets(self, page_class: int, wanted: int) -> int:
        """Sheets that a class may lose: beyond its reserve, and beyond the pages that are wanted of it now."""
        pages = self.classes[page_class]
        beyond_reserve = len(pages.leased) - self.reserved_sheets[page_class]
        return min(beyond_reserve, (pages.num_obtainable - wanted) // pages.pages_per_sheet)

    def _older_sheet_of_another(self, page_class: int, wanted: Sequence[int]) -> tuple[int, int] | None:
        """(class, sheet) of another class whose every page is older than what this class would evict next."""
        if len(self.classes) == 1:
            return None
        own = self.classes[page_class].oldest_cached()
        own_age = own[0] if own else self._clock + 1
        candidates = []
        for index, pages in enumerate(self.classes):
            if index == page_class or self.num_spare_sheets(index, wanted[index]) < 1:
                continue
            oldest = pages.oldest_cached()
            if oldest is None or oldest[0] >= own_age:
                continue
            sheet = oldest[1] // pages.pages_per_sheet
            if (age := pages.age_of_sheet(sheet)) is not None and age < own_age:
                candidates.append((oldest[0], index, sheet))
        return min(candidates)[1:] if candidates else None

    def _clearable_sheets(self, page_class: int, wanted: int) -> list[int]:
        """The sheets of a class that nobody holds, as many as it may lose, oldest content first."""
        spare = self.num_spare_sheets(page_class, wanted)
        if spare < 1:
            return []
        pages = self.classes[page_class]
        ages = [(age, sheet) for sheet in pages.leased if (age := pages.age_of_sheet(sheet)) is not None]
        return [sheet for _, sheet in sorted(ages)[:spare]]

    def _clear(self, page_class: int, sheet: int) -> None:
        for group, hashes in self.classes[page_class].clear_sheet(sheet):
            self._note_removal(group, hashes)
        self.free_sheets.append(sheet)

    def _note_moves(self) -> None:
        self.epoch += 1
        self._has_moved_blocks = True

    def _note_removal(self, group_idx: GroupIdx, hashes: Sequence[BlockHash]) -> None:
        self.epoch += 1
        if self._events is not None:
            self._events.removed(group_idx, hashes)
        if self.departures is not None:
            keys = [make_offload_key(block_hash, group_idx) for block_hash in hashes]
            self.departures.note(keys, MEDIUM_DEVICE, Leaving.EVICTED, rule=_RULE, by=self.departures.by)

    def check_invariants(self) -> None:
        """For tests: sheets are in one place each, reserves are kept, and indexes and rows agree."""
        places = [*self.free_sheets, *(sheet for pages in self.classes for sheet in pages.leased)]
        assert sorted(places) == list(range(self.config.num_sheets))
        assert len(self.free_sheets) >= self._deficits([0] * len(self.classes))
        for pages in self.classes:
            pages.check_invariants()
        indexed = 0
        for group, index in enumerate_groups(self.indexes):
            for block_hash, row in index.items():
                assert self._pages_of[group].hash_of[row] == block_hash
                assert self._pages_of[group].state[row] != 0
            indexed += len(index)
        copies = sum(len(rows) for pages in self.classes for rows in pages.copies.values())
        assert indexed + copies == sum(h is not None for pages in self.classes for h in pages.hash_of)
