"""The device cache, as offloading sees it: what is there, room for what is loaded, and pages that a store reads.

A load fills pages that nobody else can find. When its bytes are there and verified they enter the index, and the
request resumes from them as from any other hit: there is no second way into a block table.

    reserve     hold what the device has of a resume point, take pages for the rest. None: nothing has changed
    fill        these pages hold their blocks now: publish them
    give_back   let everything go; what was filled stays findable, the rest is free
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from octavo.blocks.kv_cache_manager import KVCacheManager
from octavo.blocks.lookup import GroupLookup
from octavo.blocks.pool import UndoHold
from octavo.blocks.request import RequestBlocks
from octavo.ids import GroupIdx, Row, enumerate_groups
from octavo.planning import blocks_of_request


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Pages that are held for one load, for as long as anything may write to them."""

    request: RequestBlocks
    generation: int
    """The pool's; under a later one nothing is published."""
    held: tuple[tuple[GroupIdx, Sequence[Row]], ...]
    """(group, rows) that the device had."""
    destinations: tuple[Mapping[int, Row], ...]
    """By group: the row into which each missing block is to be loaded."""


class DeviceCache:
    """A `KVCacheManager`'s side of loads and stores."""

    def __init__(self, manager: KVCacheManager) -> None:
        self._manager = manager
        self._pool = manager.pool
        self.config = manager.config

    @property
    def generation(self) -> int:
        """Changes when everything is forgotten."""
        return self._pool.generation

    def blocks_of(self, request: RequestBlocks) -> list[GroupLookup]:
        """By group: which blocks of the request the device has, and their rows. Advice."""
        self._manager.hash_new_tokens(request)
        return [GroupLookup(index, h) for index, h in zip(self._pool.indexes, request.group_hashes, strict=True)]

    def reserve(
        self, request: RequestBlocks, there: Sequence[Sequence[Row]], missing: Sequence[Sequence[int]]
    ) -> Reservation | None:
        """Holds the rows `there`, and takes a page for each missing block, by group. None, and nothing has changed,
        where there is no room for that and for what the request needs besides to compute all that is known of it."""
        undo: list[UndoHold] = [
            self._pool.hold_undoably(group, rows) for group, rows in enumerate_groups(there) if rows
        ]
        counts, whole = [0] * len(self._pool.classes), [0] * len(self._pool.classes)
        most = blocks_of_request(self.config, request.num_tokens)
        for group, rows, blocks, num_blocks in zip(self.config.groups, there, missing, most, strict=True):
            if group.page_class is not None:
                counts[group.page_class] += len(blocks)
                whole[group.page_class] += max(len(blocks), num_blocks - len(rows))
        if not self._pool.can_take(whole):
            self._pool.undo_holds(undo)
            return None
        supply = self._pool.take(counts)
        destinations = []
        for group, blocks in zip(self.config.groups, missing, strict=True):
            rows = supply[group.page_class or 0]
            destinations.append(dict(zip(blocks, rows[: len(blocks)], strict=True)))
            del rows[: len(blocks)]
        return Reservation(
            request=request,
            generation=self._pool.generation,
            held=tuple((group, rows) for group, rows, _ in undo),
            destinations=tuple(destinations),
        )

    def fill(self, reservation: Reservation, group_idx: GroupIdx, blocks: Sequence[int]) -> None:
        """Publishes blocks whose verified bytes are in their rows now."""
        request = reservation.request
        if blocks and reservation.generation == self._pool.generation:
            if not request.is_started:
                request.generation = reservation.generation
            rows = reservation.destinations[group_idx]
            self._pool.publish(group_idx, request, blocks, [rows[block] for block in blocks])

    def give_back(self, reservation: Reservation) -> None:
        """Lets all rows go. Nothing writes to them any more."""
        for group_idx, rows in reservation.held:
            self._pool.let_go(group_idx, rows)
        for group_idx, destinations in enumerate_groups(reservation.destinations):
            if destinations:
                self._pool.let_go(group_idx, [destinations[block] for block in sorted(destinations)])

    def hold(self, group_idx: GroupIdx, rows: Sequence[Row]) -> None:
        """A store is going to read these published rows: they stay as they are."""
        self._pool.hold(group_idx, rows)

    def let_go(self, group_idx: GroupIdx, rows: Sequence[Row]) -> None:
        """The store has read them."""
        self._pool.let_go(group_idx, rows)

    def is_busy(self) -> bool:
        """Whether some request has pages, and will let them go in time."""
        return any(request.is_started for request in self._manager.requests.values())

    def free_share(self) -> float:
        """The share of the pool's bytes that holds nothing: how near eviction is."""
        sheet_bytes = self.config.sheet_bytes
        free = len(self._pool.free_sheets) * sheet_bytes + sum(
            len(pages.free_rows) * (sheet_bytes // pages.pages_per_sheet) for pages in self._pool.classes
        )
        return free / (self.config.num_sheets * sheet_bytes)
