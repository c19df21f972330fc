"""`Sender`: the thread of a ZMQ publisher. It owns the sockets, encodes and sends batches, and answers replay."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

import zmq
from msgspec.structs import replace

from octavo.errors import WireError
from octavo.events.keys import secure_publisher, start_authenticator
from octavo.events.messages import KVEventBatch
from octavo.events.publisher_config import PublisherConfig
from octavo.events.replay import ReplayBuffer, ReplayRequests, Sent
from octavo.events.sockets import Context, Socket, can_read, linger_ms, open_endpoint
from octavo.events.wakeup import Wakeup
from octavo.events.wire import decode_sequence, encode_batch, encode_sequence

_logger = logging.getLogger(__name__)

MESSAGES_PER_TURN = 256
_REQUESTS_PER_TURN = 16
_RETRY_MS = 5
"""The pause between two attempts to send to replay clients whose queues are full."""
_PATIENCE_S = 10.0
_MAX_FRAME_FROM_PEER_BYTES = 4096
"""Peers send only subscriptions and requests, which are short."""


class TakeBatches(Protocol):
    """Returns the next batches of the queue with their sequence numbers."""

    def __call__(self, *, or_sleep: bool) -> list[tuple[int, KVEventBatch]]:
        """If there is none and `or_sleep` is true, the sender goes to sleep and will be woken."""


class Sender:
    """Owns the context, its sockets and the counters. Only its thread changes them."""

    def __init__(
        self,
        context: Context,
        config: PublisherConfig,
        *,
        endpoint: str,
        replay_endpoint: str | None,
        wakeup: Wakeup,
        take: TakeBatches,
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
        self._error: Exception | None = None
        name = f"octavo-events {endpoint}"
        self._thread = threading.Thread(target=self._run, args=(context,), name=name, daemon=True)
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

    def _run(self, context: Context) -> None:
        authenticator = None
        try:
            try:
                if self._config.keys is not None:
                    authenticator = start_authenticator(context, self._config.keys)
                self._pub, self._router = self._open(context)
            except Exception as error:  # noqa: BLE001 - raised where it is started
                self._error = error
                return
            finally:
                self._ready.set()
            self._send_until_closed()
        except Exception:
            _logger.exception("events are published no more at %s", self.endpoint)
        finally:
            left_s = 0.0 if self._close_at is None else max(0.0, self._close_at - time.monotonic())
            if authenticator is not None:
                authenticator.stop()
            context.destroy(linger=linger_ms(left_s))

    def _open(self, context: Context) -> tuple[Socket, Socket | None]:
        pub = context.socket(zmq.PUB)
        pub.set_hwm(self._config.hwm)
        if self._config.keys is not None:
            secure_publisher(pub, self._config.keys)
        self.endpoint = self._open_endpoint(pub, self.endpoint, bind=self._config.bind)
        if self.replay_endpoint is None:
            return pub, None
        router = context.socket(zmq.ROUTER)
        router.set_hwm(MESSAGES_PER_TURN)
        if self._config.keys is not None:
            secure_publisher(router, self._config.keys)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a full queue is an error here, not a lost message
        self.replay_endpoint = self._open_endpoint(router, self.replay_endpoint, bind=True)
        return pub, router

    def _open_endpoint(self, socket: Socket, endpoint: str, *, bind: bool) -> str:
        return open_endpoint(
            socket,
            endpoint,
            bind=bind,
            max_frame_bytes=_MAX_FRAME_FROM_PEER_BYTES,
            linger_s=self._config.close_timeout_s,
        )

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
            batch = replace(batch, data_parallel_rank=rank)
        try:
            payload = encode_batch(batch)
        except Exception:
            # A fault of one batch must not end the stream.
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
        """Takes requests and sends parts of answers. Returns whether it did anything."""
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
        has_sent = self.requests.serve(self._send_again, max_messages=MESSAGES_PER_TURN, now=now)
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
