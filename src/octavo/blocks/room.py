"""`Room` for a request's next step: how many pages it needs, and how they come to be free."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from octavo.blocks.compaction import PageMove, compact, rows_held
from octavo.blocks.pool import BlockPool
from octavo.blocks.request import RequestBlocks
from octavo.ids import GroupIdx, Row
from octavo.planning import KVCacheConfig, blocks_of_request
from octavo.specs import PageCopy, SingleTypeKVCacheManager

ManagedGroup: TypeAlias = tuple[GroupIdx, SingleTypeKVCacheManager, int]
"""(group, manager, page class) of a group that keeps something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The bytes that an allocation asks the engine to copy before the step's kernels run: its moves, then its copies,
    each in the order given. Of several allocations, all of the earlier one come first."""

    moves: tuple[PageMove, ...] = ()
    copies: tuple[PageCopy, ...] = ()


NOTHING_TO_COPY = Allocation()


class Room:
    """Of the pool, for the groups of a plan that keep something."""

    def __init__(self, config: KVCacheConfig, pool: BlockPool, managed: Sequence[ManagedGroup]) -> None:
        self._config = config
        self._pool = pool
        self._managed = managed

    def take_reserved(self) -> list[list[Row]]:
        """By group: rows for sinks, and the null row where a kernel needs one."""
        rows = []
        for group in self._config.groups:
            page_class = group.page_class or 0
            counts = [0] * len(self._config.page_classes)
            counts[page_class] = group.reserved_blocks
            rows.append(self._pool.take(counts)[page_class])
        return rows

    def pages_needed(self, request: RequestBlocks, num_tokens: int) -> list[int]:
        """By managed group."""
        tables = request.tables
        return [manager.num_pages_needed(tables[index], request, num_tokens) for index, manager, _ in self._managed]

    def is_free(self, needed: Sequence[int]) -> bool:
        """Whether every class has as many free pages as all groups want together: so most decode steps are served."""
        total = sum(needed)
        return not [pages for pages in self._pool.classes if len(pages.free_rows) < total]  # no generator: it is hot

    def make(
        self, request: RequestBlocks, needed: Sequence[int], must_fit_tokens: int, requests: Mapping[str, RequestBlocks]
    ) -> tuple[tuple[PageMove, ...], list[list[Row]]] | None:
        """Takes pages, after evictions and moves of all requests' pages where needed: the moves, and rows by page
        class. None, and nothing has changed, if there is no room, or none for what gets the request to
        `must_fit_tokens` (0: for no more than is needed now)."""
        counts = must_fit = self._count_by_class(needed)
        if must_fit_tokens:
            must_fit = self._count_by_class(self._most_pages_needed(request, must_fit_tokens, needed))
        moves: tuple[PageMove, ...] = ()
        if not self._pool.can_take(must_fit):
            compacted = compact(self._pool, must_fit, requests.values())
            if compacted is None:
                return None
            moves = compacted
        if self._pool.departures is not None:
            self._pool.departures.by = request.request_id
        return moves, self._pool.take(counts)

    def _most_pages_needed(self, request: RequestBlocks, num_tokens: int, needed_now: Sequence[int]) -> list[int]:
        """What a request will need at once, by managed group, while it gets to `num_tokens` step by step: a window
        lets blocks go on the way."""
        most = blocks_of_request(self._config, num_tokens)
        pages = []
        for (index, manager, _), now in zip(self._managed, needed_now, strict=True):
            table = request.tables[index]
            more = most[index] - sum(1 for _ in rows_held(table))
            pages.append(max(now, min(more, manager.num_pages_needed(table, request, num_tokens))))
        return pages

    def _count_by_class(self, pages_needed: Sequence[int]) -> list[int]:
        counts = [0] * len(self._pool.classes)
        for (_, _, page_class), pages in zip(self._managed, pages_needed, strict=True):
            counts[page_class] += pages
        return counts
