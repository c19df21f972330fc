"""`Subscriber`: reads one or several publishers. It delivers all batches in order, or a `Resync` if some are missing.

Peers are not trusted: frames are bounded in size and number, frames that are no message are counted and skipped, and a
message that cannot be decoded causes a resync. One thread or task reads at a time; any thread may close.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from math import ceil
from types import TracebackType
from typing import Self, cast

import zmq

from octavo.errors import InputError
from octavo.events.endpoint_reader import EndpointReader
from octavo.events.session import SubscriberItem
from octavo.events.shared_context import Lease, SharedContext
from octavo.events.sockets import Socket, can_read
from octavo.events.subscriber_config import SubscriberConfig
from octavo.events.subscriber_stats import SubscriberStats
from octavo.events.wakeup import Wakeup

_CLOSE_TIMEOUT_S = 5.0


class Subscriber:
    """Reads the batches of its sources: `for item in subscriber`, `async for item in subscriber`, or `poll`.

    If the first item of a publisher is a batch and not a `Resync`, it is the first batch that it ever sent.
    """

    def __init__(self, config: SubscriberConfig, *, contexts: SharedContext | None = None) -> None:
        """`contexts`: what it shares with other subscribers, if there are many in this process."""
        self._config = config
        self._contexts = contexts or SharedContext()
        self._items: deque[SubscriberItem] = deque()
        """Items that wait to be delivered: at most one batch of each source, and resyncs."""
        self._counters = SubscriberStats()
        self._lock = threading.Lock()
        """Guards the attributes below."""
        self._context: Lease | None = None
        self._sources: list[EndpointReader] = []
        self._wakeup: Wakeup | None = None
        self._reader: int | None = None
        """The thread that is reading now."""
        self._is_closing = False
        self._has_closed = threading.Event()

    @property
    def endpoints(self) -> list[str]:
        """The endpoints of the sources, with the real ports once it has started."""
        return [source.endpoint for source in self._sources] or [source.endpoint for source in self._config.sources]

    def start(self) -> Self:
        """Opens the sockets; the first read would do it too. InputError if one cannot be opened, and OSError if the
        process may open too few files."""
        with self._lock:
            self._open()
        return self

    def poll(self, timeout_s: float | None = None) -> SubscriberItem | None:
        """The next item. None after the timeout, or when the subscriber was closed."""
        with self._reading():
            for wait_s in self._waits(timeout_s):
                self._wait(wait_s)
            return self._take()

    async def poll_async(self, timeout_s: float | None = None) -> SubscriberItem | None:
        """`poll` for an event loop."""
        with self._reading():
            for wait_s in self._waits(timeout_s):
                await self._wait_async(wait_s)
            return self._take()

    def __iter__(self) -> Iterator[SubscriberItem]:
        while (item := self.poll()) is not None:
            yield item

    async def __aiter__(self) -> AsyncIterator[SubscriberItem]:
        while (item := await self.poll_async()) is not None:
            yield item

    def stats(self) -> SubscriberStats:
        return replace(self._counters, gaps=sum(source.num_gaps for source in list(self._sources)))

    def close(self) -> None:
        """Ends a read that is under way in any thread, and closes the sockets. It may be called again."""
        with self._lock:
            self._is_closing = True
            reader = self._reader
            if reader is None:
                self._close()
            elif self._wakeup is not None:
                self._wakeup.set()
        if reader not in {None, threading.get_ident()}:
            self._has_closed.wait(_CLOSE_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Makes the caller the one reader. On a closed subscriber it changes nothing."""
        with self._lock:
            is_reader = not self._is_closing
            if is_reader:
                if self._reader is not None:
                    raise InputError("a subscriber is read by one thread or task at a time")
                self._open()
                self._reader = threading.get_ident()
        try:
            yield
        finally:
            if is_reader:
                with self._lock:
                    self._reader = None
                    if self._is_closing:
                        self._close()

    def _waits(self, timeout_s: float | None) -> Iterator[float | None]:
        """Reads until there is an item, the timeout is over or the subscriber is closed. Yields each time how many
        seconds the caller shall wait for the sockets; None: without limit."""
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        while not (self._is_closing or self._items or self._read_all()):
            now = time.monotonic()
            if give_up_at is not None and now >= give_up_at:
                return
            yield self._wait_s(now, give_up_at)

    def _take(self) -> SubscriberItem | None:
        return self._items.popleft() if self._items and not self._is_closing else None

    def _open(self) -> None:
        if self._context is not None or self._is_closing:
            return
        try:
            self._wakeup = Wakeup()
            self._context = self._contexts.lease()
            for source in self._config.sources:
                self._sources.append(EndpointReader(self._context, self._config, source, self._items, self._counters))
        except Exception:  # such as that no more files may be opened: another try may work
            self._close_sockets()
            self._sources.clear()
            raise

    def _close(self) -> None:
        self._close_sockets()
        self._items.clear()
        self._has_closed.set()

    def _close_sockets(self) -> None:
        if self._context is not None:
            for source in self._sources:
                source.close()
            self._context.close()
            self._context = None
        if self._wakeup is not None:
            self._wakeup.close()
            self._wakeup = None

    def _read_all(self) -> bool:
        """Reads all sources. Returns whether an item can be delivered."""
        for source in self._sources:
            source.read(time.monotonic())
        return bool(self._items)

    def _wait_s(self, now: float, give_up_at: float | None) -> float | None:
        times = [source.give_up_at for source in self._sources if source.give_up_at is not None]
        times += [] if give_up_at is None else [give_up_at]
        return max(0.0, min(times) - now) if times else None

    def _sockets(self) -> list[Socket]:
        return [socket for source in self._sources for socket in source.sockets()]

    def _wait(self, timeout_s: float | None) -> None:
        assert self._wakeup is not None
        poller = zmq.Poller()
        poller.register(self._wakeup.fileno(), zmq.POLLIN)
        for socket in self._sockets():
            poller.register(socket, zmq.POLLIN)
        poller.poll(None if timeout_s is None else ceil(1000 * timeout_s))
        self._wakeup.clear()

    async def _wait_async(self, timeout_s: float | None) -> None:
        """A socket's descriptor signals only changes, so the sockets are checked once after the descriptors are
        registered."""
        assert self._wakeup is not None
        loop = asyncio.get_running_loop()
        has_changed = asyncio.Event()
        sockets = self._sockets()
        descriptors = [self._wakeup.fileno(), *(cast("int", socket.getsockopt(zmq.FD)) for socket in sockets)]
        for descriptor in descriptors:
            loop.add_reader(descriptor, has_changed.set)
        try:
            if not any(can_read(socket) for socket in sockets):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout_s):
                        await has_changed.wait()
        finally:
            for descriptor in descriptors:
                loop.remove_reader(descriptor)
        self._wakeup.clear()
