"""`OffloadHooks`: what the scheduler tells whoever moves blocks to slower media and back, and asks of them.

All calls come from the engine's one thread, in the order of a request's life:

    arrived  prepare*  started  computed*  (finished | preempted, and again from prepare | aborted)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from octavo.blocks import RequestBlocks
from octavo.chunks import Hint
from octavo.events import AnyEvent
from octavo.offload import OffloadStats, Readiness
from octavo.why import BelowDevice

__all__ = ["OffloadHooks", "OffloadStats", "Readiness"]


class OffloadHooks(BelowDevice, Protocol):
    """The offload side of an engine, as the engine sees it. Times are of the engine's monotonic clock."""

    def arrived(self, request: RequestBlocks, now: float) -> None:
        """The request waits for its turn."""

    def hint(self, request_id: str, hints: Sequence[Hint]) -> None:
        """What a client knows of the request's resume points; before it arrives, by the id of its blocks."""

    def prepare(self, request: RequestBlocks, now: float, *, may_borrow: bool = True) -> Readiness:
        """READY: the request may be admitted, with what the device has now. WAIT: ask again in the next step; that
        ends by a deadline. NO_ROOM: ask again, and let nobody younger in. With `may_borrow` it may be lent pages."""

    def started(self, request: RequestBlocks) -> None:
        """The request holds its pages itself by now, or is not to wait for a load any more."""

    def call_in(self, request: RequestBlocks) -> bool:
        """Takes back the pages that were lent to a waiting request; False if it has none. It will be prepared again."""

    def holds_pages(self) -> bool:
        """Whether transfers under way hold pages, which come back without anybody's doing."""

    def computed(self, request: RequestBlocks, now: float) -> None:
        """A part of a prompt was committed, or a decode step that had something to publish."""

    def finished(self, request: RequestBlocks, now: float) -> None:
        """The request came to its end, and was freed."""

    def preempted(self, request: RequestBlocks, now: float) -> None:
        """The request is about to give up its pages, and will be prepared again."""

    def aborted(self, request: RequestBlocks) -> None:
        """The request was cancelled or failed, at any point of its life, and was freed."""

    def poll(self, now: float) -> None:
        """Called once a step, before scheduling."""

    def has_pending_work(self) -> bool:
        """Whether transfers are in flight, or requests wait for them."""

    def wait(self, timeout_s: float) -> None:
        """Blocks until a transfer ends, or time is up."""

    def note_prefill(self, tokens: int, seconds: float) -> None:
        """What computing a prompt costs."""

    def resumed_from(self, request: RequestBlocks) -> Mapping[str, int]:
        """By medium, how many of the tokens that the request resumed were loaded for it."""

    def stats(self) -> OffloadStats:
        """Counts since the start."""

    def take_events(self) -> list[AnyEvent]:
        """What changed on the media below the device since the last call."""

    def reset(self, *, tiers: bool = True) -> None:
        """Everything that is cached below the device is forgotten; without `tiers`, what is in memory."""

    def is_reset_durable(self, now: float) -> bool:
        """Whether no process finds again what a `reset` forgot, also if this one is killed now."""

    def flush(self, timeout_s: float, clock: Callable[[], float]) -> bool:
        """Writes out what is on its way; False where time was up."""

    def close(self) -> None:
        """Ends all transfers and threads."""
