"""What the page at `/` shows: one JSON document, made at most once a second however many people look."""

import asyncio
from itertools import islice

import msgspec

from octavo.blocks import KVCacheManager
from octavo.engine import ClassOccupancy, Engine, EngineCounters, GroupOccupancy
from octavo.server.offload_view import TierView, view_tiers
from octavo.server.service import Service

_OLDEST_REQUESTS = 12
_MOST_PAGES_DRAWN = 32_768
"""Drawing takes the engine's time: some 50 ns a page."""
_MOST_SHEETS_DRAWN = 512
"""The most sheets that are drawn. In a larger pool each drawn sheet stands for several."""
_FRESH_S = 0.9


class SheetView(msgspec.Struct, frozen=True, array_like=True):
    """One leased sheet. A letter for each page: h held, c cached, . free."""

    page_class: int
    pages: str


class RequestView(msgspec.Struct, kw_only=True, frozen=True):
    """One request that is open."""

    id: str
    age_s: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class EngineView(msgspec.Struct, kw_only=True, frozen=True):
    """The engine, its pool and its tiers."""

    max_model_len: int
    num_running: int
    num_waiting: int
    counters: EngineCounters
    groups: tuple[GroupOccupancy, ...]
    classes: tuple[ClassOccupancy, ...]
    sheet_bytes: int
    num_sheets: int
    free_sheets: int
    sheets: list[SheetView | None]
    sheets_apart: int
    """Every how many-th sheet is drawn."""
    tiers: list[TierView]


class PageState(msgspec.Struct, kw_only=True, frozen=True):
    """Everything on the page."""

    model: str
    uptime_s: float
    engine: EngineView
    requests: list[RequestView]
    """The oldest."""
    num_requests: int


class PageStates:
    """Makes the page's document; everybody who asks within one second gets the same one."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._clock = service.metrics.latencies.clock
        self._began = self._clock()
        self._lock = asyncio.Lock()
        self._made: bytes = b""
        self._made_at = float("-inf")

    async def get(self) -> bytes:
        """The document. EngineClosedError if there is no engine any more."""
        async with self._lock:
            if self._clock() - self._made_at >= _FRESH_S:
                seen = await self._service.engine.call(self._look)
                self._made = msgspec.json.encode(self._state(seen))
                self._made_at = self._clock()
            return self._made

    def _state(self, seen: EngineView) -> PageState:
        now, live = self._clock(), self._service.live
        oldest = [
            RequestView(
                id=request.request_id,
                age_s=now - request.began,
                prompt_tokens=request.num_prompt_tokens,
                cached_tokens=sum(request.cached_tokens.values()),
                output_tokens=request.num_output_tokens,
            )
            for request in islice(live, _OLDEST_REQUESTS)
        ]
        return PageState(
            model=self._service.config.model_name,
            uptime_s=now - self._began,
            engine=seen,
            requests=oldest,
            num_requests=len(live),
        )

    def _look(self, engine: Engine) -> EngineView:
        """Reads the engine, on the engine's thread."""
        snapshot = engine.snapshot()
        sheets, apart = draw_sheets(engine.manager)
        offload = self._service.read_offload() if self._service.read_offload else None
        return EngineView(
            max_model_len=engine.max_model_len,
            num_running=snapshot.num_running,
            num_waiting=snapshot.num_waiting,
            counters=snapshot.counters,
            groups=snapshot.groups,
            classes=snapshot.classes,
            sheet_bytes=snapshot.sheet_bytes,
            num_sheets=snapshot.num_sheets,
            free_sheets=snapshot.free_sheets,
            sheets=sheets,
            sheets_apart=apart,
            tiers=[] if offload is None else view_tiers(offload),
        )


def draw_sheets(manager: KVCacheManager) -> tuple[list[SheetView | None], int]:
    """The pool in the order of memory, and every how many-th sheet of it is drawn."""
    classes = manager.pool.classes
    num_sheets = manager.config.num_sheets
    most_pages = max((pages.pages_per_sheet for pages in classes), default=1)
    most_sheets = max(1, min(_MOST_SHEETS_DRAWN, _MOST_PAGES_DRAWN // most_pages))
    apart = -(-num_sheets // most_sheets)
    return [_draw_sheet(manager, sheet) for sheet in range(0, num_sheets, apart)], apart


def _draw_sheet(manager: KVCacheManager, sheet: int) -> SheetView | None:
    for index, pages in enumerate(manager.pool.classes):
        if sheet in pages.leased:
            states = (pages.state[row] for row in pages.rows_of_sheet(sheet))
            return SheetView(index, "".join("h" if state > 0 else "c" if state else "." for state in states))
    return None
