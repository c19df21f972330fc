"""Publishers: they hand the events of each step to subscribers.

The ZMQ publisher speaks vLLM's protocol: a PUB socket with frames `[topic, sequence, payload]`, and a ROUTER socket
that answers requests for replay. One thread owns both sockets and encodes; `publish` only puts the batch into a
bounded queue. A batch that does not fit is dropped and counted. Its sequence number stays used, so subscribers see a
gap.
"""

import atexit
import threading
import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from octavo.errors import InputError
from octavo.events.endpoints import endpoint_of_rank
from octavo.events.messages import AllBlocksCleared, BlockStored, KVEventBatch
from octavo.events.publisher_config import PublisherConfig
from octavo.events.sender import MESSAGES_PER_TURN, Sender
from octavo.events.sockets import new_context
from octavo.events.wakeup import Wakeup


class Volume(NamedTuple):
    """An amount of batches and of their bytes."""

    batches: int
    num_bytes: int


class EventPublisher(Protocol):
    """Takes the events of a step. The caller never changes a batch after it was published."""

    @property
    def published(self) -> Volume:
        """All that was published so far. The next batch gets this number or a higher one."""

    @property
    def replay_bounds(self) -> Volume:
        """How much is kept for replay at most; nothing where nobody can ask for replay."""

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints of live events and of their replay, with the real ports; none inside one process."""

    def publish(self, batch: KVEventBatch) -> None:
        """Takes a batch. It neither waits nor fails, so that subscribers cannot hold up an engine's step."""

    def close(self) -> None:
        """Sends the queued batches as far as its time limit allows, and ends. It may be called again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherStats:
    """The counters of a publisher, and the fill of its queue and its replay buffer."""

    next_sequence: int
    sent_batches: int
    sent_bytes: int
    dropped_batches: int
    """Batches that subscribers miss: the queue was full, the batch too long or not encodable, the publisher closed."""
    queued_batches: int
    queued_bytes: int
    replay_batches: int
    replay_bytes: int
    replay_requests_answered: int
    replay_requests_refused: int
    """Requests beyond the bound, malformed ones, and ones whose client did not read the answer."""
    replayed_batches: int


def estimated_bytes(batch: KVEventBatch) -> int:
    """The approximate size of the encoded batch, computed without looking at single blocks."""
    num_bytes = 32
    for event in batch.events:
        num_bytes += 128
        if isinstance(event, AllBlocksCleared):
            continue
        hashes = event.block_hashes
        num_bytes += len(hashes) * (34 if hashes and isinstance(hashes[0], bytes) else 9)
        if isinstance(event, BlockStored):
            num_bytes += 4 * len(event.token_ids) + 64 * len(event.extra_keys or ())
    return num_bytes


class ZmqPublisher:
    """Publishes over ZMQ from a thread of its own. Call `start` and `close`, or use it in `with`."""

    def __init__(self, config: PublisherConfig) -> None:
        rank = config.data_parallel_rank
        self._config = config
        self._endpoint = endpoint_of_rank(config.endpoint, rank)
        self._replay_endpoint = (
            None if config.replay_endpoint is None else endpoint_of_rank(config.replay_endpoint, rank)
        )
        self._lock = threading.Lock()
        """Guards the queue and the numbers up to `_is_asleep`."""
        self._queue: deque[tuple[int, KVEventBatch, int]] = deque()
        self._queued_bytes = 0
        self._next_sequence = 0
        self._num_bytes = 0
        self._num_dropped = 0
        self._has_unseen_drop = False
        self._is_closing = False
        self._is_asleep = False
        self._start_lock = threading.Lock()
        self._wakeup: Wakeup | None = None
        self._sender: Sender | None = None

    @property
    def endpoint(self) -> str:
        """The endpoint of live messages, with the real port once it has started."""
        return self._sender.endpoint if self._sender else self._endpoint

    @property
    def replay_endpoint(self) -> str | None:
        """The endpoint of replay, with the real port once it has started."""
        return self._sender.replay_endpoint if self._sender else self._replay_endpoint

    @property
    def endpoints(self) -> tuple[str, ...]:
        return (self.endpoint,) if self.replay_endpoint is None else (self.endpoint, self.replay_endpoint)

    @property
    def published(self) -> Volume:
        return Volume(self._next_sequence, self._num_bytes)

    @property
    def replay_bounds(self) -> Volume:
        config = self._config
        return Volume(0, 0) if config.replay_endpoint is None else Volume(config.replay_batches, config.replay_bytes)

    def start(self) -> Self:
        """Opens the sockets. InputError if one cannot be opened; then none stays open."""
        with self._start_lock:
            if self._sender is None and not self._is_closing:
                try:
                    context = new_context()
                except OSError as error:
                    raise InputError(
                        f"events cannot be published ({error.strerror}): raise the limit of open files (ulimit -n)"
                    ) from error
                self._wakeup = Wakeup()
                self._sender = Sender(
                    context,
                    self._config,
                    endpoint=self._endpoint,
                    replay_endpoint=self._replay_endpoint,
                    wakeup=self._wakeup,
                    take=self._take,
                    drop=self._drop,
                )
                atexit.register(self.close)
        return self

    def publish(self, batch: KVEventBatch) -> None:
        num_bytes = estimated_bytes(batch)
        with self._lock:
            sequence = self._next_sequence
            self._next_sequence += 1
            self._num_bytes += num_bytes
            if (
                self._is_closing
                or len(self._queue) >= self._config.max_queued_batches
                or self._queued_bytes + num_bytes > self._config.max_queued_bytes
            ):
                self._num_dropped += 1
                self._has_unseen_drop = True
            else:
                self._queue.append((sequence, batch, num_bytes))
                self._queued_bytes += num_bytes
            must_wake, self._is_asleep = self._is_asleep, False
        if must_wake and self._wakeup is not None:
            self._wakeup.set()

    def stats(self) -> PublisherStats:
        sender = self._sender
        with self._lock:
            return PublisherStats(
                next_sequence=self._next_sequence,
                dropped_batches=self._num_dropped,
                queued_batches=len(self._queue),
                queued_bytes=self._queued_bytes,
                sent_batches=sender.num_sent if sender else 0,
                sent_bytes=sender.num_bytes_sent if sender else 0,
                replay_batches=len(sender.buffer) if sender else 0,
                replay_bytes=sender.buffer.num_bytes if sender else 0,
                replay_requests_answered=sender.requests.num_answered if sender else 0,
                replay_requests_refused=sender.requests.num_refused + sender.num_malformed if sender else 0,
                replayed_batches=sender.requests.num_messages if sender else 0,
            )

    def close(self) -> None:
        with self._start_lock:
            with self._lock:
                self._is_closing = True
            if self._sender is not None:
                self._sender.close()
                atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, *, or_sleep: bool) -> list[tuple[int, KVEventBatch]]:
        """The next batches of the queue, for the sender. If there is none and `or_sleep` is true, the next `publish`
        will wake the sender."""
        with self._lock:
            taken: list[tuple[int, KVEventBatch]] = []
            while self._queue and len(taken) < MESSAGES_PER_TURN:
                sequence, batch, num_bytes = self._queue.popleft()
                self._queued_bytes -= num_bytes
                taken.append((sequence, batch))
            if not self._queue and self._has_unseen_drop:
                # An empty batch shows subscribers the gap now. The next step's batch may come much later.
                taken.append((self._next_sequence, KVEventBatch(ts=time.time(), events=[])))
                self._next_sequence += 1
                self._has_unseen_drop = False
            self._is_asleep = or_sleep and not taken
            return taken

    def _drop(self) -> None:
        with self._lock:
            self._num_dropped += 1
            self._has_unseen_drop = True
