"""Prints a picture of docs/pictures as SVG: `make_picture.py sheets|resume|media`.

The numbers are not drawn by hand: sheets are those of a plan, and the resume point is where `longest_resume` says. The
colours are light or dark, as the reader's screen is.
"""

import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from octavo.planning import plan_kv_cache, read_model
from octavo.specs import (
    CacheDType,
    FullAttentionSpec,
    GroupAvailability,
    KVCacheSpec,
    MambaSpec,
    RequestLimits,
    ResumePoint,
    SlidingWindowSpec,
    longest_resume,
)
from octavo.units import format_bytes

MODEL = Path(__file__).parents[1] / "examples" / "models" / "gemma-3-27b.json"
BLOCK = 16
STYLE = """\
text { font: 14px system-ui, sans-serif; fill: #24292f }
.small { font-size: 12px; fill: #57606a } .strong { font-weight: 600 } .middle { text-anchor: middle }
.frame { fill: none; stroke: #57606a } .empty { fill: #eaeef2; stroke: #afb8c1 }
.full { fill: #1f883d } .window { fill: #bf6a02 } .state { fill: #8250df } .pale { opacity: 0.35 }
.needed { fill: none; stroke: #0969da; stroke-width: 2.5 } .line { stroke: #0969da; stroke-width: 2; fill: none }
.ruled-out { stroke: #afb8c1; stroke-width: 1.5; stroke-dasharray: 4 4 } .point { fill: #0969da }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .frame { stroke: #9198a1 } .empty { fill: #2a313c; stroke: #3d444d }
.full { fill: #3fb950 } .window { fill: #e3923a } .state { fill: #ab7df8 } .pale { opacity: 0.4 }
.needed { stroke: #58a6ff } .line { stroke: #58a6ff } .ruled-out { stroke: #565e68 } .point { fill: #58a6ff }
}"""


def text(x: float, y: float, content: str, classes: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{classes}">{escape(content)}</text>'


def box(x: float, y: float, width: float, height: float, classes: str, *, radius: float = 2) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" class="{classes}"/>'


def line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{classes}"/>'


def picture(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>\n{STYLE}\n</style>", *parts, "</svg>", ""])


def sheets() -> str:
    """Eight sheets of a pool: two leased to full attention, two to windows, the others free."""
    config = plan_kv_cache(read_model(MODEL).layers, memory_bytes=40 << 30, limits=RequestLimits(max_model_len=131072))
    pages = {group.kind: config.class_of(group) for group in config.groups}
    full, window = pages["full_attention"], pages["sliding_window"]
    leases = [(full, 18, "full"), (full, 7, "full"), (window, 4, "window"), (window, 3, "window")]
    parts = [
        text(20, 28, f"One pool of {config.num_sheets:,} sheets, {format_bytes(config.sheet_bytes)} each", "strong")
    ]
    for sheet in range(8):
        x, y = 20 + sheet * 88, 44
        parts.append(box(x, y, 80, 150, "frame", radius=4))
        if sheet < len(leases):
            page_class, used, kind = leases[sheet]
            parts += cut(x + 4, y + 4, page_class.pages_per_sheet, used, kind)
        else:
            parts.append(text(x + 40, y + 80, "free", "small middle"))
    for x, page_class, kind, what in ((20, full, "full", "full attention"), (376, window, "window", "windows")):
        parts += [
            box(x, 218, 14, 14, kind),
            text(
                x + 22,
                230,
                f"{what}: a sheet is {page_class.pages_per_sheet} pages of {format_bytes(page_class.page_bytes)}",
            ),
        ]
    parts += [
        box(20, 244, 14, 14, "empty"),
        text(42, 256, "a page that nobody holds: the next block of the same page class may take it", "small"),
    ]
    return picture(740, 276, "A pool of equal sheets, each cut into the pages of one page class", parts)


def cut(x: float, y: float, count: int, used: int, kind: str) -> Iterator[str]:
    """A sheet's pages, row by row, the first of them in use."""
    columns = next(c for c in (3, 2, 1) if count % c == 0)
    width, height = 72 / columns, 142 / (count // columns)
    for page in range(count):
        row, column = divmod(page, columns)
        place = (x + column * width + 1, y + row * height + 1, width - 2, height - 2)
        yield box(*place, kind if page < used else "empty", radius=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A group of the picture: its spec, and the blocks that are there. It answers for them as a cache does."""

    name: str
    kind: str
    spec: KVCacheSpec
    blocks: frozenset[int]

    def first_missing(self, start: int, stop: int) -> int:
        return next((block for block in range(start, stop) if block not in self.blocks), stop)

    def available_until(self, stop: int) -> int:
        return max((block + 1 for block in self.blocks if block < stop), default=0)


HEADS = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 64, "dtype": CacheDType.FLOAT32}
ROWS = (
    Row(name="full attention", kind="full", spec=FullAttentionSpec(**HEADS), blocks=frozenset(range(18))),
    Row(
        name="window of 64 tokens",
        kind="window",
        spec=SlidingWindowSpec(**HEADS, sliding_window=64),
        blocks=frozenset({*range(4, 12), *range(14, 18)}),
    ),
    Row(
        name="recurrent state",
        kind="state",
        spec=MambaSpec(block_size=BLOCK, shapes=((64, 64),), dtypes=(CacheDType.FLOAT32,)),
        blocks=frozenset({5, 11, 15}),
    ),
)
NUM_TOKENS = 20 * BLOCK
LEFT, CELL = 190, 26


def resume() -> str:
    """What each group has of a prompt, where the prompt resumes, and what that takes."""
    groups = [GroupAvailability(spec=row.spec, blocks=row) for row in ROWS]
    found = longest_resume(groups, ResumePoint(num_tokens=NUM_TOKENS)).num_tokens
    parts = [
        text(20, 28, "Where can this prompt go on? At the last place where every group has what it needs.", "strong")
    ]
    x = LEFT + found // BLOCK * CELL
    for index, row in enumerate(ROWS):
        y = 62 + index * 46
        parts.append(text(20, y + 18, row.name))
        for block in range(NUM_TOKENS // BLOCK):
            is_there = block in row.blocks
            parts.append(box(LEFT + block * CELL + 2, y, CELL - 4, 26, f"{row.kind} pale" if is_there else "empty"))
        for needed in row.spec.needed_blocks(ResumePoint(num_tokens=found)):
            parts += [box(LEFT + block * CELL + 2, y, CELL - 4, 26, row.kind) for block in needed]
            parts.append(box(LEFT + needed.start * CELL, y - 3, len(needed) * CELL, 32, "needed", radius=4))
    bottom = 62 + len(ROWS) * 46
    parts += [
        line(x, 44, x, bottom, "line"),
        text(x, bottom + 18, f"resumes at token {found}", "strong middle"),
        text(x, bottom + 36, "only what is right of it is computed", "small middle"),
        *tried(found),
        box(20, bottom + 52, 14, 14, "full pale"), text(40, bottom + 64, "there", "small"),
        box(100, bottom + 52, 14, 14, "empty"), text(120, bottom + 64, "not there", "small"),
        box(200, bottom + 51, 16, 16, "needed", radius=4), text(222, bottom + 64, "needed to go on there", "small"),
        line(380, bottom + 50, 380, bottom + 68, "ruled-out"),
        text(390, bottom + 64, "some groups could go on here, not all", "small"),
    ]  # fmt: skip
    return picture(740, bottom + 80, "The resume rule over three groups", parts)


def tried(found: int) -> Iterator[str]:
    """Where single groups could go on later than all of them together can."""
    for row in ROWS:
        alone = longest_resume([GroupAvailability(spec=row.spec, blocks=row)], ResumePoint(num_tokens=NUM_TOKENS))
        if alone.num_tokens > found:
            x = LEFT + alone.num_tokens // BLOCK * CELL
            yield line(x, 44, x, 62 + len(ROWS) * 46, "ruled-out")


def media() -> str:
    """Where a chunk lies and what moves it."""
    places = (
        ("device", "sheets and pages", "requests read here"),
        ("memory", "arena of equal slots", "kept by resume points"),
        ("disk", "log of segments", "survives a restart"),
    )
    moves = (("stores what was promised", "loads a resume point"), ("writes through", "promotes, verified"))
    parts = [text(20, 28, "One resume point may take its parts from all three", "strong")]
    for index, (name, what, why) in enumerate(places):
        x = 20 + index * 260
        parts += [
            box(x, 50, 180, 92, "frame", radius=6),
            text(x + 90, 80, name, "strong middle"),
            text(x + 90, 102, what, "middle"),
            text(x + 90, 124, why, "small middle"),
        ]
    for index, (down, up) in enumerate(moves):
        x = 204 + index * 260
        parts += [
            line(x, 84, x + 64, 84, "line"), f'<path d="M{x + 64} 78 l10 6 l-10 6z" class="point"/>',
            line(x + 10, 110, x + 74, 110, "line"), f'<path d="M{x + 10} 104 l-10 6 l10 6z" class="point"/>',
            text(x + 36, 162, f"→ {down}", "small middle"), text(x + 36, 180, f"← {up}", "small middle"),
        ]  # fmt: skip
    return picture(740, 196, "Device, memory and disk, and what moves between them", parts)


PICTURES = {"sheets": sheets, "resume": resume, "media": media}

if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.write(PICTURES[sys.argv[1]]())
