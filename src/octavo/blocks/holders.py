"""Who holds the rows of a pool: the proof, for tests, that no row is held by nobody or released too early."""

from collections import Counter
from collections.abc import Iterable, Sequence

from octavo.blocks.compaction import rows_held
from octavo.blocks.pool import BlockPool
from octavo.blocks.request import RequestBlocks


def check_holders(
    pool: BlockPool, class_of: Sequence[int], requests: Iterable[RequestBlocks], others: Iterable[tuple[int, int]]
) -> None:
    """Counts the holders of each row: the tables of requests, and others, each as (group, row)."""
    in_tables = [
        (class_of[group], row)
        for request in requests
        for group, table in enumerate(request.tables)
        for row in rows_held(table)
    ]
    holders = Counter([*in_tables, *((class_of[group], row) for group, row in others)])
    held = {
        (page_class, row): state
        for page_class, pages in enumerate(pool.classes)
        for row, state in enumerate(pages.state)
        if state > 0
    }
    assert holders == held
