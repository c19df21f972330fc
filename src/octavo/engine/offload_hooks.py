"""`OffloadHooks`: the calls of the engine's scheduler to offloading, which moves blocks to slower media and back.

All calls come from the engine's one thread, in the order of a request's life:

    arrived  prepare*  started  computed*  (finished | preempted, and again from prepare | aborted)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from octavo.blocks import RequestBlocks
from octavo.chunks import Hint
from octavo.engine.telling import MediaBelow
from octavo.offload import OffloadStats, Readiness
from octavo.why import BelowDevice

__all__ = ["OffloadHooks", "OffloadStats", "Readiness"]


class OffloadHooks(BelowDevice, MediaBelow, Protocol):
    """Offloading, as the engine sees it. Times are of the engine's monotonic clock."""

    def arrived(self, request: RequestBlocks, now: float) -> None:
        """A request has entered the queue."""

    def hint(self, request_id: str, hints: Sequence[Hint]) -> None:
        """A client's knowledge of the request's resume points; told before it arrives, by the id of its blocks."""

    def prepare(
        self, request: RequestBlocks, now: float, *, may_borrow: bool = True, may_start: bool = True
    ) -> Readiness:
        """READY: the request may be admitted, with what the device has now. WAIT: ask again in the next step, until a
        deadline. NO_ROOM: ask again, and let nobody younger in. With `may_borrow`, pages may be lent to it. Without
        `may_start` it would not be admitted now, and the device may have lost what READY was told of."""

    def started(self, request: RequestBlocks) -> None:
        """The request now holds its pages itself, or is not to wait for a load any more."""

    def call_in(self, request: RequestBlocks) -> bool:
        """Takes back the pages lent to a waiting request, which is then prepared again. False if it has none."""

    def holds_pages(self) -> bool:
        """Whether transfers hold pages, which they will free by themselves."""

    def computed(self, request: RequestBlocks, now: float) -> None:
        """A part of a prompt was committed, or a decode step with something to publish."""

    def finished(self, request: RequestBlocks, now: float) -> None:
        """The request came to its end, and was freed."""

    def preempted(self, request: RequestBlocks, now: float) -> None:
        """The request is about to give up its pages, and will be prepared again."""

    def aborted(self, request: RequestBlocks) -> None:
        """The request was cancelled or failed, at any point of its life, and was freed."""

    def poll(self, now: float) -> None:
        """Brings transfers forward. Called once a step, before scheduling."""

    def has_pending_work(self) -> bool:
        """Whether transfers are in flight, or requests wait for them."""

    def wait(self, timeout_s: float) -> None:
        """Blocks until a transfer ends, at most this long."""

    def note_prefill(self, tokens: int, seconds: float) -> None:
        """Notes how long computing prompt tokens took."""

    def resumed_from(self, request: RequestBlocks) -> Mapping[str, int]:
        """By medium, the number of loaded tokens among those that the request resumed."""

    @property
    def stores(self) -> Mapping[str, str]:
        """By medium: the name of the store that this engine shares with others."""

    def stats(self) -> OffloadStats:
        """Counts since the start."""

    def reset(self, *, tiers: bool = True) -> None:
        """Forgets all that is cached below the device; without `tiers`, in memory only."""

    def is_reset_durable(self, now: float) -> bool:
        """Whether all that a `reset` forgot stays forgotten, even if this process is killed now."""

    def flush(self, timeout_s: float, clock: Callable[[], float]) -> bool:
        """Finishes writes that are under way; False if the time was not enough."""

    def close(self) -> None:
        """Ends all transfers and threads."""
