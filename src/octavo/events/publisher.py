"""Publishers: who hands a step's events to those who listen.

The ZMQ publisher speaks vLLM's protocol: a PUB socket with frames `[topic, sequence, payload]`, and a ROUTER socket
that sends again what is asked for. A thread owns both, and encodes; publishing only puts the batch into a bounded
queue. What does not fit is dropped and counted, and its sequence number is used up: all who listen see a gap.
"""

import atexit
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from types import TracebackType
from typing import Protocol, Self

import zmq

from octavo.errors import InputError, WireError
from octavo.events.endpoints import check_endpoint, endpoint_of_rank, is_bound_by_publisher
from octavo.events.messages import AllBlocksCleared, BlockStored, KVEventBatch
from octavo.events.replay import ReplayBuffer, ReplayRequests, Sent
from octavo.events.sockets import Context, Socket, can_read, open_endpoint
from octavo.events.wakeup import Wakeup
from octavo.events.wire import DEFAULT_LIMITS, decode_sequence, encode_batch, encode_sequence

_logger = logging.getLogger(__name__)

_MESSAGES_PER_TURN = 64
_REQUESTS_PER_TURN = 16
_RETRY_MS = 5
"""Between attempts to send to clients of replay that do not read."""
_PATIENCE_S = 10.0
_MAX_FRAME_FROM_PEER_BYTES = 4096
"""Peers send subscriptions and requests, nothing long."""


class EventPublisher(Protocol):
    """Whoever takes a step's events. The caller never changes a batch after it was published."""

    def publish(self, batch: KVEventBatch) -> None:
        """Takes a batch. It neither waits nor fails, so that an engine's step goes on whoever listens."""

    def close(self) -> None:
        """Delivers what can still be delivered, and ends. It may be called again."""


class NullPublisher:
    """Nobody listens."""

    def publish(self, batch: KVEventBatch) -> None:
        pass

    def close(self) -> None:
        pass


class InProcessPublisher:
    """Hands batches to functions in this process, in the caller's thread. What they raise, the caller gets."""

    def __init__(self) -> None:
        self._subscribers: dict[object, Callable[[KVEventBatch], None]] = {}

    def subscribe(self, subscriber: Callable[[KVEventBatch], None]) -> Callable[[], None]:
        """Every batch from now on goes to the function. Returns what ends it."""
        ticket = object()
        self._subscribers[ticket] = subscriber

        def unsubscribe() -> None:
            self._subscribers.pop(ticket, None)

        return unsubscribe

    def publish(self, batch: KVEventBatch) -> None:
        for subscriber in list(self._subscribers.values()):
            subscriber(batch)

    def close(self) -> None:
        self._subscribers.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherConfig:
    """Where a publisher is heard, and what it may keep."""

    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    topic: str = ""
    data_parallel_rank: int = 0
    """Counts the ports up, and is put on batches that name none."""
    bind: bool | None = None
    """None: as vLLM does, which binds `tcp://*:P`, ipc and inproc, and connects to other addresses."""
    hwm: int = 10_000
    """Messages that wait for one subscriber. It misses more, and sees a gap."""
    max_queued_batches: int = 10_000
    max_queued_bytes: int = 64 << 20
    """As estimated before encoding. More is dropped, and shows as a gap."""
    max_message_bytes: int = DEFAULT_LIMITS.max_payload_bytes
    """Batches that are longer are dropped, as no subscriber would read them."""
    replay_batches: int = 10_000
    replay_bytes: int = 64 << 20
    """The oldest of more are forgotten."""
    max_replay_requests: int = 64
    """Requests that wait for their answers; more are refused."""
    close_timeout_s: float = 1.0
    """How long closing may take, to send what is queued."""

    def __post_init__(self) -> None:
        check_endpoint(self.endpoint)
        if self.replay_endpoint is not None:
            check_endpoint(self.replay_endpoint)
        least = {"data_parallel_rank": 0, "replay_batches": 0, "replay_bytes": 0} | dict.fromkeys(
            ("hwm", "max_queued_batches", "max_queued_bytes", "max_message_bytes", "max_replay_requests"), 1
        )
        for name, number in least.items():
            if getattr(self, name) < number:
                raise InputError(f"{name} must be {number} or more, not {getattr(self, name)}")
        if not 0 <= self.close_timeout_s <= threading.TIMEOUT_MAX:
            raise InputError(f"close_timeout_s must be 0 or more, not {self.close_timeout_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherStats:
    """What a publisher did until now."""

    next_sequence: int
    sent_batches: int
    sent_bytes: int
    dropped_batches: int
    """Gaps that subscribers see: the queue was full, a batch too long or impossible to encode, the publisher closed."""
    queued_batches: int
    queued_bytes: int
    replay_batches: int
    replay_bytes: int
    replay_requests_answered: int
    replay_requests_refused: int
    """Beyond the bound, malformed, or given up as their client did not read."""
    replayed_batches: int


def estimated_bytes(batch: KVEventBatch) -> int:
    """About what a batch takes when it is encoded, found without looking at single blocks."""
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
    """Publishes over ZMQ, from a thread of its own. Start it, or use it in `with`, and close it."""

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
        self._num_dropped = 0
        self._has_unseen_drop = False
        self._is_closing = False
        self._is_asleep = False
        self._start_lock = threading.Lock()
        self._wakeup: Wakeup | None = None
        self._sender: _Sender | None = None

    @property
    def endpoint(self) -> str:
        """Where it is heard, with the real port once it has started."""
        return self._sender.endpoint if self._sender else self._endpoint

    @property
    def replay_endpoint(self) -> str | None:
        """Where it sends again, with the real port once it has started."""
        return self._sender.replay_endpoint if self._sender else self._replay_endpoint

    def start(self) -> Self:
        """Opens the sockets. InputError if an endpoint cannot be had; then nothing is left open."""
        with self._start_lock:
            if self._sender is None and not self._is_closing:
                self._wakeup = Wakeup()
                self._sender = _Sender(
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
        """Some batches of the queue, for the sender. Where there are none, it may go to sleep, and will be woken."""
        with self._lock:
            taken: list[tuple[int, KVEventBatch]] = []
            while self._queue and len(taken) < _MESSAGES_PER_TURN:
                sequence, batch, num_bytes = self._queue.popleft()
                self._queued_bytes -= num_bytes
                taken.append((sequence, batch))
            if not self._queue and self._has_unseen_drop:
                # What was dropped last would be seen only with the next step's batch, which may be long in coming.
                taken.append((self._next_sequence, KVEventBatch(ts=time.time(), events=[])))
                self._next_sequence += 1
                self._has_unseen_drop = False
            self._is_asleep = or_sleep and not taken
            return taken

    def _drop(self) -> None:
        with self._lock:
            self._num_dropped += 1
            self._has_unseen_drop = True


class _Take(Protocol):
    def __call__(self, *, or_sleep: bool) -> list[tuple[int, KVEventBatch]]: ...


class _Sender:
    """The thread that owns the sockets, and its numbers, which only it changes."""

    def __init__(
        self,
        config: PublisherConfig,
        *,
        endpoint: str,
        replay_endpoint: str | None,
        wakeup: Wakeup,
        take: _Take,
        drop: Callable[[], None],
    ) -> None:
        self.endpoint = endpoint
        self.replay_endpoint = replay_endpoint
        self._wakeup = wakeup
        self.buffer = ReplayBuffer(
            max_messages=config.replay_batches if replay_endpoint else 0, max_bytes=config.replay_bytes
        )
        self.requests = ReplayRequests(self.buffer, max_requests=config.max_replay_requests, patience_s=_PATIENCE_S)
        self.num_sent = 0
        self.num_bytes_sent = 0
        self.num_malformed = 0
        self._config = config
        self._topic = config.topic.encode()
        self._take = take
        self._drop = drop
        self._close_at: float | None = None
        self._ready = threading.Event()
        self._error: InputError | None = None
        self._thread = threading.Thread(target=self._run, name=f"octavo-events {endpoint}", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            self._wakeup.close()
            raise self._error

    def close(self) -> None:
        if self._close_at is None:
            self._close_at = time.monotonic() + self._config.close_timeout_s
            self._wakeup.set()
        self._thread.join()
        self._wakeup.close()

    def _run(self) -> None:
        context: Context = zmq.Context()
        try:
            try:
                self._pub, self._router = self._open(context)
            except InputError as error:
                self._error = error
                return
            finally:
                self._ready.set()
            self._send_until_closed()
        except Exception:
            _logger.exception("events are published no more at %s", self.endpoint)
        finally:
            left_s = 0.0 if self._close_at is None else max(0.0, self._close_at - time.monotonic())
            context.destroy(linger=ceil(1000 * left_s))

    def _open(self, context: Context) -> tuple[Socket, Socket | None]:
        pub = context.socket(zmq.PUB)
        pub.set_hwm(self._config.hwm)
        is_bound = is_bound_by_publisher(self.endpoint) if self._config.bind is None else self._config.bind
        self.endpoint = open_endpoint(pub, self.endpoint, bind=is_bound, max_frame_bytes=_MAX_FRAME_FROM_PEER_BYTES)
        if self.replay_endpoint is None:
            return pub, None
        router = context.socket(zmq.ROUTER)
        router.set_hwm(_MESSAGES_PER_TURN)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # who does not read is waited for, and loses nothing
        self.replay_endpoint = open_endpoint(
            router, self.replay_endpoint, bind=True, max_frame_bytes=_MAX_FRAME_FROM_PEER_BYTES
        )
        return pub, router

    def _send_until_closed(self) -> None:
        poller = zmq.Poller()
        poller.register(self._wakeup.fileno(), zmq.POLLIN)
        if self._router is not None:
            poller.register(self._router, zmq.POLLIN)
        is_idle = False
        while True:
            is_closing = self._close_at is not None
            batches = self._take(or_sleep=is_idle)
            for sequence, batch in batches:
                self._send(sequence, batch)
            if is_closing and (not batches or time.monotonic() >= (self._close_at or 0.0)):
                return
            has_replayed = self._router is not None and self._serve(self._router)
            if is_idle and not batches and not has_replayed:
                poller.poll(_RETRY_MS if len(self.requests) else None)
                self._wakeup.clear()
            is_idle = not batches and not has_replayed

    def _send(self, sequence: int, batch: KVEventBatch) -> None:
        if batch.data_parallel_rank is None:
            rank = self._config.data_parallel_rank
            batch = KVEventBatch(ts=batch.ts, events=batch.events, data_parallel_rank=rank)
        try:
            payload = encode_batch(batch)
        except Exception:
            # Whatever is wrong with this batch, the next one may be right.
            _logger.exception("batch %d cannot be encoded", sequence)
            self._drop()
            return
        if len(payload) > self._config.max_message_bytes:
            self._drop()
            return
        self._pub.send_multipart((self._topic, encode_sequence(sequence), payload), zmq.NOBLOCK)
        self.buffer.append(sequence, payload)
        self.num_sent += 1
        self.num_bytes_sent += len(payload)

    def _serve(self, router: Socket) -> bool:
        """Takes requests and sends parts of answers. Whether anything was done."""
        now = time.monotonic()
        num_requests = 0
        while num_requests < _REQUESTS_PER_TURN and can_read(router):
            num_requests += 1
            try:
                client, _, start = router.recv_multipart(zmq.NOBLOCK)
                self.requests.add(client, decode_sequence(start), now)
            except (ValueError, WireError):
                self.num_malformed += 1
        if not len(self.requests):
            return num_requests > 0
        has_sent = self.requests.serve(self._send_again, max_messages=_MESSAGES_PER_TURN, now=now)
        return has_sent or num_requests > 0

    def _send_again(self, client: bytes, sequence: int, payload: bytes) -> Sent:
        assert self._router is not None
        topic = self._topic if payload else b""
        try:
            self._router.send_multipart((client, b"", topic, encode_sequence(sequence), payload), zmq.NOBLOCK)
        except zmq.Again:
            return Sent.LATER
        except zmq.ZMQError:
            return Sent.CLIENT_GONE
        return Sent.DONE
