"""How large a sheet is, and how it is cut: the size at which the pool holds the most requests.

All numbers are in units of the alignment. A sheet of `m` units holds `k` pages of a class where k divides m and
`m / k` is at least the page; the rest of `m / k` is padding. So the search wants an m with divisors close above all
page sizes. It tries sheets of one to a few of the largest pages, in steps of a smooth number when pages are large:
that keeps the number of tries small, rounds m up by less than 1/500, and gives each m many divisors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

_MOST_LARGEST_PAGES = 8
"""Sheets hold at most this many of the largest page; larger ones fit better but fragment more."""
_STEPS_PER_PAGE = 500
_MOST_STEPS_PER_PAGE = 2000
"""Where pages are so large that the largest smooth number is a small step."""
_SMOOTH_NUMBERS = (1, 2, 4, 6, 12, 24, 48, 60, 120, 240, 360, 720, 1440, 2520, 5040, 10080, 27720, 55440, 110880)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageDemand:
    """How many pages of one size a request holds at most."""

    page_units: int
    pages_per_request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetCut:
    """A sheet's size, and how many pages of each demand it is cut into."""

    sheet_units: int
    pages_per_sheet: tuple[int, ...]


def cut_sheets(demands: Sequence[PageDemand], pool_units: int) -> SheetCut:
    """The cut with which a pool holds the most requests; of equals the one with the smallest sheets.

    The caller guarantees at least one demand, and a pool that is not smaller than the largest page.
    """
    largest = max(demand.page_units for demand in demands)
    if all(demand.page_units == largest for demand in demands):
        return SheetCut(sheet_units=largest, pages_per_sheet=(1,) * len(demands))
    step = max(number for number in _SMOOTH_NUMBERS if number * _STEPS_PER_PAGE <= max(largest, _STEPS_PER_PAGE))
    step *= max(1, largest // (step * _MOST_STEPS_PER_PAGE))
    most = min(largest * _MOST_LARGEST_PAGES, pool_units)
    candidates = {largest, *range(-(-largest // step) * step, most + 1, step)}
    cuts = [_cut(sheet_units, demands) for sheet_units in sorted(candidates)]
    return max(cuts, key=lambda cut: _requests_held(cut, demands, pool_units))


def _cut(sheet_units: int, demands: Sequence[PageDemand]) -> SheetCut:
    pages = tuple(_largest_divisor_up_to(sheet_units // demand.page_units, sheet_units) for demand in demands)
    return SheetCut(sheet_units=sheet_units, pages_per_sheet=pages)


def _largest_divisor_up_to(limit: int, number: int) -> int:
    """Divisors come in pairs, one of which is at most the square root; so few tries are enough."""
    root = isqrt(number)
    for quotient in range(-(-number // limit), root + 1):
        if number % quotient == 0:
            return number // quotient
    return next(k for k in range(min(limit, root), 0, -1) if number % k == 0)


def _requests_held(cut: SheetCut, demands: Sequence[PageDemand], pool_units: int) -> float:
    """Requests that fit when every class but one leaves half of its last sheet empty."""
    num_classes = len(set(cut.pages_per_sheet))
    sheets = pool_units // cut.sheet_units - (num_classes - 1) / 2
    sheets_per_request = sum(d.pages_per_request / k for d, k in zip(demands, cut.pages_per_sheet, strict=True))
    return sheets / sheets_per_request
