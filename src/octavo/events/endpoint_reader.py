"""`EndpointReader`: the sockets of one endpoint. It gives each message to the session of its publisher.

While it waits for an answer of replay, it leaves live messages in their socket, which bounds them by `hwm`.
"""

import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import xxhash
import zmq

from octavo.errors import InputError, WireError
from octavo.events.connection_watch import ConnectionWatch, NewConnection
from octavo.events.followed_publisher import FollowedPublisher
from octavo.events.keys import secure_subscriber
from octavo.events.replay import END_SEQUENCE
from octavo.events.session import Delivered, Heard, PublisherSession, Resync, Silence, SubscriberItem, Verdict
from octavo.events.shared_context import Lease
from octavo.events.skim import skim_batch
from octavo.events.sockets import Socket, open_endpoint
from octavo.events.subscriber_config import SourceConfig, SubscriberConfig
from octavo.events.subscriber_stats import SubscriberStats
from octavo.events.wire import decode_batch, decode_sequence, encode_sequence

_MESSAGES_PER_TURN = 64
_BYTES_PER_TURN = 1 << 17
"""Payload bytes read in one turn; the last message may exceed it. More would leave the CPU cache before decoding."""
_RECONNECT_MS = 50
_RECONNECT_MAX_MS = 2000
_HEARTBEATS_MISSED = 3
_LONGEST_TTL_MS = 6_553_599
"""ZMQ sends it as 16 bits, in tenths of a second."""
_SECOND_LOOK_S = 0.2
"""The first replay may be answered before the subscription takes effect, so replay is asked again after this time."""
_RECHECK_AFTER_FAILURE_S = 60.0
_MAX_DOUBLINGS = 6
"""Live messages wait during a replay, so an endpoint that failed to answer is asked again only after a minute, and
after twice as long with each further failure, up to about an hour."""
_LEAST_FRAME_BYTES = 4096
"""The bound of a frame is never lower than this, so that a topic fits even under a small payload limit."""
_END = encode_sequence(END_SEQUENCE)
_NEVER = float("inf")


class _Message(NamedTuple):
    topic: bytes
    sequence: int
    payload: bytes
    digest: int


@dataclass(slots=True, kw_only=True)
class _Replay:
    """One request to a replay endpoint. It has a socket of its own, so that two answers cannot mix."""

    publisher: FollowedPublisher
    socket: Socket
    held: _Message | None
    give_up_at: float
    num_messages: int = 0


class EndpointReader:
    """Reads the publishers of one endpoint, without ever waiting."""

    def __init__(
        self,
        context: Lease,
        config: SubscriberConfig,
        source: SourceConfig,
        items: deque[SubscriberItem],
        counters: SubscriberStats,
    ) -> None:
        self._context = context
        self._config = config
        self._source = source
        self._items = items
        self._counters = counters
        self._max_frame_bytes = max(config.limits.max_payload_bytes, _LEAST_FRAME_BYTES)
        self._topics = tuple(topic.encode() for topic in source.topics)
        self._publishers: dict[bytes, FollowedPublisher] = {}
        self._unnamed: FollowedPublisher | None = None
        """The publisher that replay is asked about before its first message came."""
        self._waiting: deque[_Message] = deque()
        """Live messages of one turn. They wait until the caller wants an item and no replay is running."""
        self._to_verify: deque[FollowedPublisher] = deque()
        self._replay: _Replay | None = None
        self._recheck_at: float | None = None
        self._num_failures = 0
        """Replays in sequence that were not answered."""
        self._to_recheck: deque[FollowedPublisher] = deque()
        self._open()

    @property
    def give_up_at(self) -> float | None:
        """When `read` must be called even if no message comes."""
        recheck_at = None if self._replay is not None else self._recheck_at
        replay_s = None if self._replay is None else self._replay.give_up_at
        silent_at = min(map(self._silent_at, self._publishers.values()), default=_NEVER)
        times = (self._watch.reconnect_at, replay_s, recheck_at, None if silent_at == _NEVER else silent_at)
        return min((t for t in times if t is not None), default=None)

    @property
    def num_gaps(self) -> int:
        return sum(publisher.session.num_gaps for publisher in list(self._publishers.values()))

    def sockets(self) -> Sequence[Socket]:
        """The sockets to wait for."""
        return (self._watch.monitor, self._sub if self._replay is None else self._replay.socket)

    def read(self, now: float) -> None:
        """Reads until there is an item to deliver. A decoded batch takes ten times the memory of its message, so
        messages are decoded one at a time."""
        num_items = len(self._items)
        if self._replay is not None or not self._waiting:
            self._receive(now)
            if not self._waiting:
                self._notice_silence(now)
        while self._replay is None and self._waiting and len(self._items) == num_items:
            self._take_live(self._waiting.popleft(), now)
        while self._replay is None and not self._waiting and self._to_recheck:
            publisher = self._to_recheck.popleft()
            self._apply(publisher, publisher.session.recheck(), None, now)

    def close(self) -> None:
        """Closes its sockets."""
        self._end_replay()
        self._watch.close()
        self._sub.close(linger=0)

    def _open(self) -> None:
        self._sub = self._context.socket(zmq.SUB)
        self._watch = ConnectionWatch(self._context, self._sub, is_bound=self._source.bind)
        self._sub.set_hwm(self._config.hwm)
        self._set_options(self._sub)
        for topic in self._topics:
            self._sub.subscribe(topic)
        self.endpoint = open_endpoint(
            self._sub, self._source.endpoint, bind=self._source.bind, max_frame_bytes=self._max_frame_bytes
        )
        self._watch.opened(self.endpoint)

    def _set_options(self, socket: Socket) -> None:
        if self._source.keys is not None:
            secure_subscriber(socket, self._source.keys)
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        if self._config.heartbeat_s:
            interval_ms = max(1, round(1000 * self._config.heartbeat_s))
            patience_ms = _HEARTBEATS_MISSED * interval_ms
            socket.setsockopt(zmq.HEARTBEAT_IVL, interval_ms)
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, patience_ms)
            # The publisher's patience: what waits for a subscriber that is gone is in the engine's memory.
            socket.setsockopt(zmq.HEARTBEAT_TTL, min(patience_ms, _LONGEST_TTL_MS))

    def _follow_connection(self, now: float) -> None:
        """Notices new connections. It must run after messages were received and before they are handled, so that no
        message of a new connection is handled before the connection is noticed."""
        found = self._watch.look(now)
        if found is None:
            return
        if found is NewConnection.AFTER_LOSS:
            self._discard_live()
        if not self._publishers and self._source.replay_endpoint is not None and self._unnamed is None:
            self._unnamed = self._new_publisher()
        self._end_replay()
        self._to_verify = self._all_publishers()
        self._to_recheck.clear()
        self._recheck_later(now, _SECOND_LOOK_S)

    def _all_publishers(self) -> deque[FollowedPublisher]:
        return deque([*self._publishers.values(), *([] if self._unnamed is None else [self._unnamed])])

    def _recheck_later(self, now: float, seconds: float) -> None:
        if self._source.replay_endpoint is not None and self._config.recheck_s:
            self._recheck_at = now + seconds

    def _receive(self, now: float) -> None:
        """Reads the sockets, follows the connection and starts the replays that are due."""
        if self._replay is not None:
            self._read_replay(self._replay, now)
        else:
            self._read_live()
        self._follow_connection(now)
        while self._replay is None and self._to_verify:
            publisher = self._to_verify.popleft()
            self._apply(publisher, publisher.session.interrupted(), None, now)
        if self._waiting and not any(publisher.session.is_unanswered for publisher in self._publishers.values()):
            self._recheck_later(now, self._config.recheck_s)
        elif self._recheck_at is not None and now >= self._recheck_at:
            self._to_recheck = self._all_publishers()
            self._recheck_later(now, self._config.recheck_s)

    def _discard_live(self) -> None:
        """Drops messages that may belong to the previous connection. Replay has them if the publisher is the same."""
        self._counters.discarded += len(self._waiting)
        self._waiting.clear()
        with contextlib.suppress(zmq.Again):
            for _ in range(2 * self._config.hwm):
                self._sub.recv_multipart(zmq.NOBLOCK)
                self._counters.received += 1
                self._counters.discarded += 1

    def _read_live(self) -> None:
        num_bytes = 0
        with contextlib.suppress(zmq.Again):
            for _ in range(_MESSAGES_PER_TURN):
                frames = self._sub.recv_multipart(zmq.NOBLOCK)
                self._counters.received += 1
                message = _message(frames)
                if message is None:
                    self._counters.malformed += 1
                    continue
                self._waiting.append(message)
                num_bytes += len(message.payload)
                if num_bytes >= _BYTES_PER_TURN:
                    break

    def _take_live(self, message: _Message, now: float) -> None:
        publisher = self._publishers.get(message.topic)
        if publisher is None and len(self._publishers) < self._config.max_topics:
            publisher = self._name(message.topic)
        if publisher is None:
            self._counters.discarded += 1
            return
        publisher.heard_at, publisher.is_silent = now, False
        self._apply(publisher, publisher.session.live(message.sequence, message.digest), message, now)

    def _read_replay(self, replay: _Replay, now: float) -> None:
        session = replay.publisher.session
        num_items = len(self._items)
        for _ in range(_MESSAGES_PER_TURN):
            if len(self._items) > num_items:
                return
            try:
                frames = replay.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            replay.give_up_at = now + self._config.replay_timeout_s
            replay.num_messages += 1
            if frames == [b"", b"", _END, b""]:
                if self._num_failures:
                    self._num_failures = 0
                    self._recheck_later(now, self._config.recheck_s)
                self._apply(replay.publisher, session.replay_ended(), replay.held, now)
                if replay.publisher.answers(now):
                    self._items.append(Heard(topic=_text(replay.publisher.topic or b""), endpoint=self.endpoint))
            elif replay.num_messages > self._config.max_replay_messages:
                replay.give_up_at = now
                break
            else:
                self._take_replayed(replay, frames, now)
            if self._replay is not replay:
                return
        if now >= replay.give_up_at:
            self._give_up(replay.publisher, replay.held, now)

    def _give_up(self, publisher: FollowedPublisher, held: _Message | None, now: float) -> None:
        """A replay that was asked for does not come."""
        self._to_recheck.clear()
        pause_s = max(self._config.recheck_s, _RECHECK_AFTER_FAILURE_S)
        self._recheck_later(now, pause_s * 2 ** min(self._num_failures, _MAX_DOUBLINGS))
        self._num_failures += 1
        self._apply(publisher, publisher.session.replay_failed(), held, now)

    def _silent_at(self, publisher: FollowedPublisher) -> float:
        return publisher.silent_at(lost_at=self._watch.lost_at, patience_s=self._config.lost_s)

    def _notice_silence(self, now: float) -> None:
        for publisher in self._publishers.values():
            if now >= self._silent_at(publisher):
                publisher.is_silent = True
                topic = _text(publisher.topic or b"")
                self._items.append(Silence(silent_s=publisher.silent_s(now), topic=topic, endpoint=self.endpoint))

    def _take_replayed(self, replay: _Replay, frames: list[bytes], now: float) -> None:
        message = _message(frames[1:]) if frames[0] == b"" else None
        if message is None:
            self._counters.malformed += 1
            return
        publisher = replay.publisher
        if publisher.topic is None and message.topic.startswith(self._topics):
            self._name(message.topic)
        if publisher.topic != message.topic:
            self._counters.discarded += 1
            return
        self._counters.replayed += 1
        verdict = publisher.session.replayed(message.sequence, message.digest)
        if verdict.has_failed:
            self._apply(publisher, publisher.session.replay_failed(), replay.held, now)
        else:
            self._apply(publisher, verdict, message, now)

    def _apply(self, publisher: FollowedPublisher, verdict: Verdict, message: _Message | None, now: float) -> None:
        """Carries out the verdict of a session."""
        held = self._replay.held if self._replay is not None else message
        is_replayed = self._replay is not None and message is not held
        if verdict.replay_from is not None or not publisher.session.is_asking:
            self._end_replay()
        self._counters.duplicates += verdict.is_duplicate
        if verdict.resync is not None:
            self._emit_resync(publisher, verdict.resync)
        if verdict.deliver:
            assert message is not None
            self._deliver(publisher, message, now, is_replayed=is_replayed)
        if verdict.replay_from is not None:
            self._replay = self._ask(publisher, verdict.replay_from, held, now)
            if self._replay is None:
                self._give_up(publisher, held, now)

    def _deliver(self, publisher: FollowedPublisher, message: _Message, now: float, *, is_replayed: bool) -> None:
        try:
            decode = decode_batch if self._config.with_tokens else skim_batch
            batch = decode(message.payload, limits=self._config.limits)
        except WireError:
            self._counters.malformed += 1
            self._emit_resync(publisher, publisher.session.malformed(message.sequence))
            return
        self._counters.delivered += 1
        if batch.plan is not None and batch.plan.heartbeat_s is not None:
            publisher.promised(batch.plan.heartbeat_s, now)
        self._items.append(
            Delivered(
                sequence=message.sequence,
                topic=_text(message.topic),
                batch=batch,
                endpoint=self.endpoint,
                payload=message.payload,
                is_replayed=is_replayed,
                is_whole=publisher.is_whole(message.sequence, batch.whole_since),
            )
        )

    def _emit_resync(self, publisher: FollowedPublisher, resync: Resync) -> None:
        self._counters.resyncs += 1
        publisher.missed_some()
        self._items.append(replace(resync, topic=_text(publisher.topic or b""), endpoint=self.endpoint))

    def _ask(self, publisher: FollowedPublisher, start: int, held: _Message | None, now: float) -> _Replay | None:
        """None if no socket can be had, for example since no more files may be opened."""
        assert self._source.replay_endpoint is not None
        self._counters.replays += 1
        try:
            socket = self._context.socket(zmq.DEALER)
        except zmq.ZMQError:
            return None
        socket.set_hwm(self._config.max_replay_messages)  # vLLM drops what is not taken at once
        with contextlib.suppress(InputError, zmq.Again):  # an answer that does not come is dealt with already
            self._set_options(socket)
            open_endpoint(socket, self._source.replay_endpoint, bind=False, max_frame_bytes=self._max_frame_bytes)
            socket.send_multipart((b"", encode_sequence(start)), zmq.NOBLOCK)
        return _Replay(publisher=publisher, socket=socket, held=held, give_up_at=now + self._config.replay_timeout_s)

    def _end_replay(self) -> None:
        if self._replay is not None:
            self._replay.socket.close(linger=0)
            self._replay = None

    def _new_publisher(self) -> FollowedPublisher:
        return FollowedPublisher(session=PublisherSession(can_replay=self._source.replay_endpoint is not None))

    def _name(self, topic: bytes) -> FollowedPublisher:
        """The publisher of a new topic: the unnamed publisher if there is one."""
        publisher = self._unnamed or self._new_publisher()
        self._unnamed = None
        publisher.topic = topic
        self._publishers[topic] = publisher
        return publisher


def _message(frames: Sequence[bytes]) -> _Message | None:
    if len(frames) != 3:
        return None
    try:
        sequence = decode_sequence(frames[1])
    except WireError:
        return None
    if sequence == END_SEQUENCE:
        return None
    topic, _, payload = frames
    return _Message(topic, sequence, payload, digest=xxhash.xxh3_128_intdigest(payload))


def _text(topic: bytes) -> str:
    return topic.decode(errors="surrogateescape")
