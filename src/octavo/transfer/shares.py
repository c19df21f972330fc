"""One rank's share of a page: which bytes it has of the page that one rank alone would have.

    whole page   row 0: [ head 0 | head 1 | head 2 | head 3 ]   row 1: [ ... ]     what a chunk holds, block by block
    rank 1 of 2  row 0: [ head 2 | head 3 ]                     row 1: [ ... ]     what lies on its device

A page is equal rows of fields, once or several times, and a field is units of which no rank has a part only: KV heads,
heads of a state, channels of a convolution, or one unit that every rank has. Ranks have equally many units each, in
order. Where there are more ranks than units, neighbours have the same unit, and the first of them writes it. So
chunks are the same bytes however many ranks there are, and with one rank a page is copied as it is.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

from octavo.errors import CacheLayoutError


class Field(NamedTuple):
    """Neighbouring units of a row."""

    num_units: int
    """Of all ranks; 1 for bytes that every rank has."""
    unit_bytes: int


class Rows(NamedTuple):
    """Equal rows, one after the other."""

    num_rows: int
    fields: tuple[Field, ...]

    @property
    def row_bytes(self) -> int:
        return sum(field.num_units * field.unit_bytes for field in self.fields)


class Run(NamedTuple):
    """Some bytes, `times` times, a stride apart on each side."""

    page_start: int
    whole_start: int
    num_bytes: int
    times: int = 1
    page_stride: int = 0
    whole_stride: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageShare:
    """The copies between one rank's page and the whole one."""

    page_bytes: int
    whole_bytes: int
    loads: tuple[Run, ...]
    """They fill the rank's page."""
    stores: tuple[Run, ...]
    """Those of `loads` that this rank writes. Over all ranks they fill the whole page, each byte once, unless the whole
    page has room that nobody fills."""


def share_page(whole: Sequence[Rows], rank: int, num_ranks: int) -> PageShare:
    """The share of one rank; CacheLayoutError for units that cannot be dealt out."""
    loads: list[Run] = []
    stores: list[Run] = []
    page_start = whole_start = 0
    for rows in whole:
        runs, is_writer = _share_rows(rows, rank, num_ranks, page_start, whole_start)
        loads += map(_flat, _merge(runs))
        stores += map(_flat, _merge(compress(runs, is_writer)))
        page_start += rows.num_rows * sum(run.num_bytes for run in runs)
        whole_start += rows.num_rows * rows.row_bytes
    return PageShare(
        page_bytes=page_start, whole_bytes=whole_start, loads=tuple(_merge(loads)), stores=tuple(_merge(stores))
    )


def _share_rows(
    rows: Rows, rank: int, num_ranks: int, page_start: int, whole_start: int
) -> tuple[list[Run], list[bool]]:
    """A run for each field, and whether the rank writes it."""
    dealt = [_deal(field, rank, num_ranks) for field in rows.fields]
    page_stride = sum(count * field.unit_bytes for field, (_, count, _) in zip(rows.fields, dealt, strict=True))
    runs = []
    for field, (first, count, _) in zip(rows.fields, dealt, strict=True):
        start, num_bytes = whole_start + first * field.unit_bytes, count * field.unit_bytes
        runs.append(Run(page_start, start, num_bytes, rows.num_rows, page_stride, rows.row_bytes))
        page_start += num_bytes
        whole_start += field.num_units * field.unit_bytes
    return runs, [is_writer for _, _, is_writer in dealt]


def share_beside(page_bytes: int, whole_bytes: int, rank: int, num_ranks: int) -> PageShare:
    """The share of a rank whose page is opaque: the ranks' pages lie side by side, in equal parts of the whole one."""
    part_bytes = whole_bytes // num_ranks
    if page_bytes > part_bytes:
        raise CacheLayoutError(f"a page of {page_bytes} bytes is no part of {whole_bytes} bytes for {num_ranks} ranks")
    runs = (Run(0, rank * part_bytes, page_bytes),) if page_bytes else ()
    return PageShare(page_bytes=page_bytes, whole_bytes=whole_bytes, loads=runs, stores=runs)


def _deal(field: Field, rank: int, num_ranks: int) -> tuple[int, int, bool]:
    """The first of the rank's units, how many it has, and whether it writes them."""
    if field.num_units % num_ranks == 0:
        count = field.num_units // num_ranks
        return rank * count, count, True
    if num_ranks % field.num_units == 0:
        first, index = divmod(rank, num_ranks // field.num_units)
        return first, 1, index == 0
    raise CacheLayoutError(
        f"{field.num_units} units can neither be split over {num_ranks} ranks nor be replicated: choose a number of "
        "ranks that divides them or is a multiple of them"
    )


def _merge(runs: Iterable[Run]) -> Iterator[Run]:
    """The same bytes in as few runs as neighbours make."""
    last: Run | None = None
    for run in runs:
        if last is not None and last._replace(num_bytes=0) == _moved(run, -last.num_bytes):
            last = last._replace(num_bytes=last.num_bytes + run.num_bytes)
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def _moved(run: Run, by: int) -> Run:
    """Where it begins and its steps, but not its length."""
    return run._replace(page_start=run.page_start + by, whole_start=run.whole_start + by, num_bytes=0)


def _flat(run: Run) -> Run:
    """Rows without a gap are one piece."""
    if run.times == 1 or run.page_stride == run.whole_stride == run.num_bytes:
        return Run(run.page_start, run.whole_start, run.num_bytes * run.times)
    return run
