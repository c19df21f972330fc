"""The picture of a sheet: a bar for each way to cut it, in which every page is equally wide.

    4 pages     ███████░ ███████░ ███████░ ███████░      content, padding, and a gap between pages
    24 pages    █▌█▌█▌█▌█▌█▌█▌█▌█▌█▌█▌█▌█▌█▌█▌█▌█▌█▌     too narrow for padding
    480 pages   ▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊▊     a cell stands for several pages

Each bar is the same sheet, so the width is taken at which their ends differ least.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_LEAST_SHARE_OF_WIDTH = 0.6
_NARROWEST_WITH_PADDING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One way to cut a sheet."""

    text: str
    pages_per_cell: int


def sheet_picture(cuts: Sequence[tuple[int, float]], width: int) -> list[Bar]:
    """The bars for cuts into these numbers of pages, each with this fraction of content."""
    counts = [pages for pages, _ in cuts]
    widths = range(width, max(1, int(width * _LEAST_SHARE_OF_WIDTH)), -1)
    best = min(widths, key=lambda w: sum(w - _drawn_width(pages, w) for pages in counts), default=max(1, width))
    return [_bar(pages, filled, best) for pages, filled in cuts]


def _drawn_width(pages: int, width: int) -> int:
    cells = _num_cells(pages, width)
    return width // cells * cells


def _num_cells(pages: int, width: int) -> int:
    """The most cells that each stand for equally many pages."""
    return max(n for n in range(1, width + 1) if pages % n == 0)


def _bar(pages: int, filled: float, width: int) -> Bar:
    cells = _num_cells(pages, width)
    return Bar(text=(_cell(width // cells, filled) * cells).rstrip(), pages_per_cell=pages // cells)


def _cell(width: int, filled: float) -> str:
    if width < _NARROWEST_WITH_PADDING:
        return "█" * (width - 1) + ("▌" if width > 1 else "▊")
    content = max(1, round((width - 1) * filled))
    return "█" * content + "░" * (width - 1 - content) + " "
