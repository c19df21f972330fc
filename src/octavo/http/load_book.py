"""`LoadBook`: the load of an engine, by who sent it. Several routers before one engine learn here of each other's
requests.

    a router      names itself in each request, and the tokens that it expects the engine to compute
    the engine    counts them from the request's head on, and tells each router what others have sent (`GET /load`),
                  and how long its loads take

So no request counts twice. Each line tells all there is, so a line that is lost costs nothing after the next one.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from octavo.offload import LoadSpeed

ROUTER = "x-octavo-router"
"""The header of a request that names the router that sent it."""
PREFILL = "x-octavo-prefill"
"""The header with the prompt's tokens that this router expects to be computed."""
LOAD_HEARTBEAT_S = 5.0
"""The load is told again after this time, though nothing has changed."""
_BETWEEN_LINES_S = 0.01
"""What changes within this time after a line is told in one line more. It must be short: routers that hear of a load
much later follow each other to the same engine."""
_ENDS_WAIT_S = 0.25
"""A request that has ended is told with the next line, after this time at the latest: it waits for no prefill."""
_MOST_CHARS_OF_NAME = 64
_MOST_DIGITS = 9

_Count = Annotated[int, Meta(ge=0, le=1 << 50)]


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Open requests."""

    requests: _Count = 0
    prefill_tokens: _Count = 0
    """Their tokens that are to be computed before their first tokens."""
    load_speeds: dict[str, LoadSpeed] = {}
    """By medium: how long the engine's loads take, as far as it has measured them."""


class OpenLoad:
    """The share of one request. `end` must follow."""

    __slots__ = ("_book", "_has_begun", "_is_told", "_prefill_tokens", "_router")

    def __init__(self, book: "LoadBook", router: str, prefill_tokens: int | None) -> None:
        self._book = book
        self._router = router
        self._is_told = prefill_tokens is not None
        self._prefill_tokens = 0
        self._has_begun = False
        book.add(router, requests=1)
        self._expect(prefill_tokens or 0)

    def read(self, num_prompt_tokens: int) -> None:
        """The prompt is known. A router cannot expect more of it than there is; without a router all of it counts."""
        self._expect(min(self._prefill_tokens, num_prompt_tokens) if self._is_told else num_prompt_tokens)

    def begun(self) -> None:
        """Its first token came."""
        self._expect(0)
        self._has_begun = True

    def end(self) -> None:
        """It is answered, or given up."""
        self.begun()
        self._book.add(self._router, requests=-1)

    def _expect(self, prefill_tokens: int) -> None:
        if not self._has_begun and prefill_tokens != self._prefill_tokens:
            self._book.add(self._router, prefill_tokens=prefill_tokens - self._prefill_tokens)
            self._prefill_tokens = prefill_tokens


class LoadBook:
    """The load of one engine. Used from one event loop."""

    def __init__(self, *, max_model_len: int) -> None:
        """No request counts for more than `max_model_len` tokens, whatever its head says."""
        self._max_model_len = max_model_len
        self._sent: dict[str, Load] = {}
        """By router; of one that has nothing open there is no entry."""
        self._all = Load()
        self.load_speeds: Mapping[str, LoadSpeed] = {}
        """They are told with whatever is told next."""
        self._changed = asyncio.Event()
        self._is_closed = False

    def begin(self, headers: Mapping[bytes, bytes]) -> OpenLoad:
        """A request with this head came."""
        name, told = headers.get(ROUTER.encode(), b""), headers.get(PREFILL.encode(), b"")
        router = name.decode("latin-1") if len(name) <= _MOST_CHARS_OF_NAME else ""
        is_number = told.isdigit() and len(told) <= _MOST_DIGITS
        return OpenLoad(self, router, min(int(told), self._max_model_len) if is_number else None)

    def others(self, router: str) -> Load:
        """All that this router has not sent."""
        return _sum(self._all, self._sent.get(router, Load()), sign=-1)

    async def news(self, router: str) -> AsyncIterator[Load]:
        """`others` now, and whenever it changes."""
        told, tell_again_at, clock = None, 0.0, asyncio.get_running_loop().time
        while not self._is_closed:
            changed, now = self._changed, self.others(router)
            if told is None or _matters(now, told):
                told, tell_again_at = now, clock() + LOAD_HEARTBEAT_S
                yield msgspec.structs.replace(now, load_speeds=dict(self.load_speeds))
                await asyncio.sleep(_BETWEEN_LINES_S)
            elif now != told:
                tell_again_at = min(tell_again_at, clock() + _ENDS_WAIT_S)
            try:
                async with asyncio.timeout_at(tell_again_at):
                    await changed.wait()
            except TimeoutError:
                told = None

    def close(self) -> None:
        """Ends all `news`."""
        self._is_closed = True
        self._wake()

    def add(self, router: str, *, requests: int = 0, prefill_tokens: int = 0) -> None:
        """Counts more of a router, or less."""
        change = Load(requests=requests, prefill_tokens=prefill_tokens)
        self._all = _sum(self._all, change)
        self._sent[router] = _sum(self._sent.get(router, Load()), change)
        if self._sent[router] == Load():
            del self._sent[router]
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _matters(now: Load, told: Load) -> bool:
    """Whether there is more to tell than that requests have ended."""
    return now.prefill_tokens != told.prefill_tokens or now.requests > told.requests


def _sum(one: Load, other: Load, *, sign: int = 1) -> Load:
    return Load(
        requests=one.requests + sign * other.requests,
        prefill_tokens=one.prefill_tokens + sign * other.prefill_tokens,
    )
