"""The subscriber: one reader of one or several publishers, who gets every batch in order, or is told what he missed.

It takes whatever peers send: frames are bounded in size and number, what is not a message is counted and skipped, and
a message that cannot be read is a resync. It is read by one thread or task at a time, and closed from any.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from math import ceil
from types import TracebackType
from typing import Self, cast

import zmq

from octavo.errors import InputError
from octavo.events.endpoint_reader import Counters, EndpointReader
from octavo.events.endpoints import check_endpoint
from octavo.events.session import SubscriberItem
from octavo.events.sockets import Context, Socket, can_read
from octavo.events.wakeup import Wakeup
from octavo.events.wire import DEFAULT_LIMITS, WireLimits

_CLOSE_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """Where one publisher is heard; several, told apart by their topics, if there is no replay endpoint."""

    endpoint: str = "tcp://127.0.0.1:5557"
    replay_endpoint: str | None = None
    bind: bool = False
    """Publishers with an address such as `tcp://127.0.0.1:P` connect, and it is the subscriber who binds."""
    topics: tuple[str, ...] = ("",)
    """Beginnings of the topics that are heard."""

    def __post_init__(self) -> None:
        check_endpoint(self.endpoint)
        if "*" in self.endpoint and not self.bind:
            raise InputError(f"{self.endpoint} can be bound, not connected to: name the publisher's host, or bind")
        if self.replay_endpoint is not None:
            check_endpoint(self.replay_endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberConfig:
    """What is read, and what it may take."""

    sources: tuple[SourceConfig, ...] = (SourceConfig(),)
    hwm: int = 10_000
    """Messages of one publisher that wait to be read. It drops more, which is seen as a gap."""
    limits: WireLimits = DEFAULT_LIMITS
    replay_timeout_s: float = 2.0
    """Between two messages of an answer. Live messages wait for its end."""
    recheck_s: float = 5.0
    """After so long without a message replay is asked for what may have been lost. 0: never."""
    max_replay_messages: int = 1 << 17
    """Of one answer; a longer one counts as failed."""
    max_topics: int = 1024
    """Publishers told apart at one endpoint; messages of more are counted and skipped."""
    heartbeat_s: float = 5.0
    """Between signs of life on a connection; one that is silent for three is made anew. 0: none."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("a subscriber needs a source")
        for name in ("hwm", "max_replay_messages", "max_topics"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if not 0 < self.replay_timeout_s < float("inf"):
            raise InputError(f"replay_timeout_s must be more than 0, not {self.replay_timeout_s}")
        for name in ("recheck_s", "heartbeat_s"):
            if not 0 <= getattr(self, name) < 1 << 16:
                raise InputError(f"{name} must be 0 or more, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberStats:
    """What a subscriber did until now."""

    received: int
    """Messages from live sockets."""
    delivered: int
    duplicates: int
    malformed: int
    """Messages that are not of the protocol, or whose payload cannot be read."""
    discarded: int
    """Live messages of a connection that was lost meanwhile, and those of more topics than are told apart."""
    gaps: int
    replays: int
    """Times that replay was asked."""
    replayed: int
    """Messages that came in answer."""
    resyncs: int


class Subscriber:
    """Reads the batches of its sources: `for item in subscriber`, `async for item in subscriber`, or `poll`.

    Until the first item of a publisher comes, nothing is known of it. If that is a batch and no `Resync`, it is the
    publisher's first.
    """

    def __init__(self, config: SubscriberConfig) -> None:
        self._config = config
        self._items: deque[SubscriberItem] = deque()
        """What was read and not yet delivered: at most one batch of every source, and resyncs."""
        self._counters = Counters()
        self._lock = threading.Lock()
        """Guards the rest."""
        self._context: Context | None = None
        self._sources: list[EndpointReader] = []
        self._wakeup: Wakeup | None = None
        self._reader: int | None = None
        """The thread that reads now."""
        self._is_closing = False
        self._has_closed = threading.Event()

    @property
    def endpoints(self) -> list[str]:
        """Of the sources, with the real ports once it has started."""
        return [source.endpoint for source in self._sources] or [source.endpoint for source in self._config.sources]

    def start(self) -> Self:
        """Opens the sockets, which reading would do too. InputError if an endpoint cannot be had."""
        with self._lock:
            self._open()
        return self

    def poll(self, timeout_s: float | None = None) -> SubscriberItem | None:
        """The next item. None after the timeout, or when the subscriber was closed."""
        if not self._enter():
            return None
        try:
            give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
            while not (self._items or self._read_all() or self._is_closing):
                now = time.monotonic()
                if give_up_at is not None and now >= give_up_at:
                    break
                self._wait(self._wait_s(now, give_up_at))
            return self._take()
        finally:
            self._leave()

    async def poll_async(self, timeout_s: float | None = None) -> SubscriberItem | None:
        """The next item. None after the timeout, or when the subscriber was closed."""
        if not self._enter():
            return None
        try:
            give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
            while not (self._items or self._read_all() or self._is_closing):
                now = time.monotonic()
                if give_up_at is not None and now >= give_up_at:
                    break
                await self._wait_async(self._wait_s(now, give_up_at))
            return self._take()
        finally:
            self._leave()

    def __iter__(self) -> Iterator[SubscriberItem]:
        while (item := self.poll()) is not None:
            yield item

    async def __aiter__(self) -> AsyncIterator[SubscriberItem]:
        while (item := await self.poll_async()) is not None:
            yield item

    def stats(self) -> SubscriberStats:
        counters = self._counters
        return SubscriberStats(
            received=counters.received,
            delivered=counters.delivered,
            duplicates=counters.duplicates,
            malformed=counters.malformed,
            discarded=counters.discarded,
            gaps=sum(source.num_gaps for source in list(self._sources)),
            replays=counters.replays,
            replayed=counters.replayed,
            resyncs=counters.resyncs,
        )

    def close(self) -> None:
        """Ends reading, wherever it is going on, and closes the sockets. It may be called again."""
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

    def _take(self) -> SubscriberItem | None:
        return self._items.popleft() if self._items and not self._is_closing else None

    def _enter(self) -> bool:
        """Makes the caller the one who reads. False if there is nothing to be read any more."""
        with self._lock:
            if self._is_closing:
                return False
            if self._reader is not None:
                raise InputError("a subscriber is read by one thread or task at a time")
            self._open()
            self._reader = threading.get_ident()
            return True

    def _leave(self) -> None:
        with self._lock:
            self._reader = None
            if self._is_closing:
                self._close()

    def _open(self) -> None:
        if self._context is not None or self._is_closing:
            return
        self._context, self._wakeup = zmq.Context(), Wakeup()
        try:
            for source in self._config.sources:
                self._sources.append(EndpointReader(self._context, self._config, source, self._items, self._counters))
        except InputError:
            self._close_sockets()
            self._sources.clear()
            raise

    def _close(self) -> None:
        self._close_sockets()
        self._items.clear()
        self._has_closed.set()

    def _close_sockets(self) -> None:
        if self._context is None:
            return
        for source in self._sources:
            source.close()
        self._context.destroy(linger=0)
        self._context = None
        if self._wakeup is not None:
            self._wakeup.close()
            self._wakeup = None

    def _read_all(self) -> bool:
        """Reads what is there. Whether anything can be delivered."""
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
        """The sockets' descriptors tell only that something has changed, so what they hold is looked at after."""
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
                    await asyncio.wait_for(has_changed.wait(), timeout_s)
        finally:
            for descriptor in descriptors:
                loop.remove_reader(descriptor)
        self._wakeup.clear()
