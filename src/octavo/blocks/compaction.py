"""Page moves: when bytes suffice but no sheet is free, held pages are moved together until one is.

Only pages whose every holder is a request's table can move, since only those holders can be told. The engine copies
the bytes between steps, before anything else of the step.

    sheet a   [held][    ][    ][held]      moved to b and c, then given back
    sheet b   [held][held][    ][held]
    sheet c   [held][cached][held][held]    a cached page gives way
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from octavo.blocks.pages import ClassPages
from octavo.blocks.pool import BlockPool
from octavo.blocks.request import RequestBlocks
from octavo.blocks.state_manager import StateTable
from octavo.ids import Row
from octavo.specs import NULL_BLOCK, BlockTable


@dataclass(frozen=True, slots=True, kw_only=True)
class PageMove:
    """One page's bytes that move to another row of the same class."""

    page_class: int
    source: Row
    destination: Row


def rows_held(table: BlockTable) -> Iterator[Row]:
    """The rows that a table holds, once per hold."""
    yield from (row for row in table.rows if row != NULL_BLOCK)
    if isinstance(table, StateTable) and table.kept_row != NULL_BLOCK:
        yield table.kept_row


def compact(pool: BlockPool, counts: Sequence[int], requests: Iterable[RequestBlocks]) -> tuple[PageMove, ...] | None:
    """Makes `pool.can_take(counts)` true by moving pages, or returns None and changes nothing."""
    needed = pool.num_sheets_short(counts)
    spare = [max(0, pool.num_spare_sheets(page_class, count)) for page_class, count in enumerate(counts)]
    if sum(spare) < needed:
        return None
    tables = _tables_by_class(pool, requests)
    candidates: list[tuple[int, int, int]] = []
    for page_class, pages in enumerate(pool.classes):
        if spare[page_class]:
            movable = _sheets_that_can_leave(pages, tables[page_class])
            fewest_held = sorted((held, page_class, sheet) for sheet, held in movable.items())
            candidates += fewest_held[: spare[page_class]]
    if len(candidates) < needed:
        return None
    leaving: list[list[int]] = [[] for _ in pool.classes]
    for _, page_class, sheet in sorted(candidates)[:needed]:
        leaving[page_class].append(sheet)
    return tuple(move for index, sheets in enumerate(leaving) for move in _empty(pool, index, sheets, tables[index]))


def _tables_by_class(pool: BlockPool, requests: Iterable[RequestBlocks]) -> list[list[BlockTable]]:
    tables: list[list[BlockTable]] = [[] for _ in pool.classes]
    for request in requests:
        for group, table in zip(pool.config.groups, request.tables, strict=True):
            if group.page_class is not None:
                tables[group.page_class].append(table)
    return tables


def _sheets_that_can_leave(pages: ClassPages, tables: Sequence[BlockTable]) -> dict[int, int]:
    """Sheets all of whose holders are tables, and how many held pages each has."""
    told = Counter(row for table in tables for row in rows_held(table))
    held = {sheet: pages.held_rows(sheet) for sheet in pages.leased}
    return {sheet: len(rows) for sheet, rows in held.items() if all(told[row] == pages.state[row] for row in rows)}


def _empty(pool: BlockPool, page_class: int, sheets: Sequence[int], tables: Sequence[BlockTable]) -> list[PageMove]:
    """Moves the held pages of these sheets to rows of other sheets that nobody holds, and gives the sheets back."""
    if not sheets:
        return []
    pages = pool.classes[page_class]
    sources = [row for sheet in sheets for row in pages.held_rows(sheet)]
    staying = sorted(pages.leased.difference(sheets), key=lambda sheet: -len(pages.held_rows(sheet)))
    room = [row for sheet in staying for row in pages.rows_of_sheet(sheet) if pages.state[row] <= 0]
    room.sort(key=lambda row: -pages.state[row])  # free rows first, then the oldest content
    new_row = dict(zip(sources, room, strict=False))
    pool.move_and_give_back(page_class, new_row, sheets)
    for table in tables:
        _rewrite(table, new_row)
    return [PageMove(page_class=page_class, source=old, destination=new) for old, new in new_row.items()]


def _rewrite(table: BlockTable, new_row: dict[Row, Row]) -> None:
    table.rows = [new_row.get(row, row) for row in table.rows]
    if isinstance(table, StateTable):
        table.kept_row = new_row.get(table.kept_row, table.kept_row)
