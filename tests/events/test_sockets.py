"""Publisher and subscriber over real sockets: whatever happens between them, the subscriber's view equals the
publisher's state, or it has said that it does not know."""

import asyncio
import random
import threading
import time
from pathlib import Path

import msgspec
import pytest
import zmq

from octavo.errors import InputError
from octavo.events.messages import AllBlocksCleared, BlockRemoved, KVEventBatch
from octavo.events.published_plan import PublishedPlan
from octavo.events.publisher import ZmqPublisher
from octavo.events.publisher_config import PublisherConfig
from octavo.events.session import Delivered, Resync, ResyncReason, Silence
from octavo.events.subscriber import Subscriber
from octavo.events.subscriber_config import SourceConfig, SubscriberConfig
from octavo.events.wire import WireLimits, encode_batch, encode_sequence

LOOPBACK = "tcp://127.0.0.1:0"
END = b"\xff" * 8
OPEN_FILES = Path("/proc/self/fd")
PATIENCE_S = 10.0
QUIET_S = 0.05
"""After which nothing more is expected, where nothing is the right answer."""


def batch(number, life=0):
    removed = BlockRemoved(block_hashes=[number], medium="GPU", group_idx=life)
    return KVEventBatch(ts=float(number + 1000 * life), events=[removed])


def payload(number, life=0):
    return encode_batch(batch(number, life))


def number_of(item):
    return item.batch.events[0].block_hashes[0]


class Peer:
    """A publisher of the test's own: it sends what it is told, with the sequences that it is told."""

    def __init__(self, endpoint=LOOPBACK, *, bind=True, replay_endpoint=None):
        self.context = zmq.Context()
        self.pub = self.context.socket(zmq.XPUB)
        self.pub.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.endpoint = endpoint
        if bind:
            self.endpoint = self.bind(self.pub, endpoint)
        else:
            self.pub.connect(endpoint)
        self.history = []
        self.router = self.context.socket(zmq.ROUTER)
        self.replay_endpoint = self.bind(self.router, replay_endpoint or LOOPBACK)
        self.answers = threading.Thread(target=self.answer, daemon=True)
        self.stopping = False
        self.answers.start()

    @staticmethod
    def bind(socket, endpoint):
        socket.bind(endpoint)
        return socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def await_subscriber(self, reader=None):
        """What a reader gets meanwhile. It subscribes to what is new only while it is read."""
        items, give_up_at = [], time.monotonic() + PATIENCE_S
        while True:
            while not self.pub.poll(0 if reader else 100):
                assert time.monotonic() < give_up_at
                item = reader.poll(0.005) if reader else None
                items += [] if item is None else [item]
            if self.pub.recv()[:1] == b"\x01":
                break
        while reader and (item := reader.poll(0)) is not None:  # the reader has noticed the connection
            items.append(item)
        return items

    def send(self, sequence, life=0, *, is_lost=False, frames=None):
        message = [b"", encode_sequence(sequence), payload(sequence, life)] if frames is None else frames
        if frames is None:
            self.history.append(message)
        if not is_lost:
            self.pub.send_multipart(message)

    def answer(self):
        while not self.stopping:
            if not self.router.poll(20):
                continue
            client, _, start = self.router.recv_multipart()
            for message in list(self.history):
                if message[1] >= start:
                    self.router.send_multipart([client, b"", *message])
            self.router.send_multipart([client, b"", b"", END, b""])

    def close(self):
        self.stopping = True
        self.answers.join()
        self.context.destroy(linger=1000)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def subscriber(peer, *, replay=True, **options):
    source = {name: options.pop(name) for name in ("bind", "topics") if name in options}
    return Subscriber(
        SubscriberConfig(
            sources=(
                SourceConfig(
                    endpoint=peer.endpoint, replay_endpoint=peer.replay_endpoint if replay else None, **source
                ),
            ),
            **options,
        )
    )


def take(reader, num):
    items = []
    while len(items) < num:
        item = reader.poll(PATIENCE_S)
        assert item is not None, f"nothing came after {items}"
        items.append(item)
    return items


def told(items):
    """Numbers of batches, and reasons of resyncs."""
    return [number_of(item) if isinstance(item, Delivered) else item.reason for item in items]


@pytest.mark.parametrize("is_replayed", [False, True])
def test_a_publisher_that_promised_heartbeats_and_is_silent_is_told_once(is_replayed):
    plan = PublishedPlan(hash_block_size=16, groups=[], heartbeat_s=0.01)
    beat = [b"", encode_sequence(0), encode_batch(KVEventBatch(ts=1.0, events=[], plan=plan))]
    with Peer() as peer, subscriber(peer, replay=is_replayed) as reader:
        if is_replayed:
            peer.history.append(beat)
        peer.await_subscriber(reader) if not is_replayed else reader.start()
        peer.send(0, frames=beat, is_lost=is_replayed)
        first, silence = take(reader, 2)
        assert first.batch.plan == plan
        assert isinstance(silence, Silence)
        assert silence.silent_s >= 0.03
        assert reader.poll(QUIET_S) is None
        peer.send(1)
        assert told(take(reader, 1)) == [1]
        assert isinstance(take(reader, 1)[0], Silence)


@pytest.mark.parametrize("is_replayed", [False, True])
def test_batches_are_decoded_one_at_a_time(is_replayed):
    with Peer() as peer, subscriber(peer, replay=is_replayed) as reader:
        peer.await_subscriber(reader)
        for sequence in range(10):
            peer.send(sequence, is_lost=is_replayed and sequence < 9)
        assert told(take(reader, 1)) == [0]
        assert reader.stats().delivered == 1
        assert told(take(reader, 9)) == list(range(1, 10))


def test_a_busy_source_does_not_silence_another():
    with Peer() as busy, Peer() as quiet:
        sources = tuple(SourceConfig(endpoint=peer.endpoint) for peer in (busy, quiet))
        with Subscriber(SubscriberConfig(sources=sources)) as reader:
            for peer in (busy, quiet):
                peer.await_subscriber(reader)
            for sequence in range(200):
                busy.send(sequence)
            quiet.send(0)
            time.sleep(4 * QUIET_S)
            assert quiet.endpoint in {item.endpoint for item in take(reader, 100)}


def test_everything_in_order():
    config = PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK, topic="kv@a", data_parallel_rank=2)
    with ZmqPublisher(config) as publisher, subscriber(publisher, topics=("kv@",)) as reader:
        for number in range(300):
            publisher.publish(batch(number))
        items = take(reader, 300)
        assert told(items) == list(range(300))
        assert [item.sequence for item in items] == list(range(300))
        assert {(item.topic, item.batch.data_parallel_rank) for item in items} == {("kv@a", 2)}
        assert reader.poll(QUIET_S) is None
        stats = reader.stats()
        assert (stats.delivered, stats.resyncs, stats.malformed) == (300, 0, 0)


def test_a_gap_is_filled_by_replay():
    with Peer() as peer, subscriber(peer) as reader:
        peer.await_subscriber()
        for sequence in range(10):
            peer.send(sequence, is_lost=sequence in {3, 4, 5, 8})
        assert told(take(reader, 10)) == list(range(10))
        assert reader.stats().resyncs == 0


def test_what_was_lost_last_is_found_though_nothing_follows():
    with Peer() as peer, subscriber(peer, recheck_s=0.05) as reader:
        peer.await_subscriber()
        peer.send(0)
        assert told(take(reader, 1)) == [0]
        peer.send(1, is_lost=True)
        assert told(take(reader, 1)) == [1]
        peer.send(2)
        assert told(take(reader, 1)) == [2]


def test_a_gap_that_the_buffer_no_longer_reaches():
    with Peer() as peer, subscriber(peer) as reader:
        peer.await_subscriber()
        peer.send(0)
        assert told(take(reader, 1)) == [0]
        for sequence in range(1, 9):
            peer.send(sequence, is_lost=True)
        del peer.history[:5]
        peer.send(9)
        assert told(take(reader, 6)) == [ResyncReason.GAP, 5, 6, 7, 8, 9]
        assert reader.poll(QUIET_S) is None


def test_without_replay_a_gap_is_a_resync():
    with Peer() as peer, subscriber(peer, replay=False) as reader:
        peer.await_subscriber()
        for sequence in (0, 1, 5, 6, 2):
            peer.send(sequence)
        items = take(reader, 7)
        assert told(items) == [0, 1, ResyncReason.GAP, 5, 6, ResyncReason.RESTARTED, 2]


def test_a_dead_replay_endpoint_is_a_resync():
    with Peer() as peer:
        peer.replay_endpoint = "tcp://127.0.0.1:9"
        with subscriber(peer, replay_timeout_s=0.05) as reader:
            peer.await_subscriber()
            peer.send(4)
            peer.send(5)
            peer.send(7)
            assert told(take(reader, 5)) == [ResyncReason.LATE_JOIN, 4, 5, ResyncReason.GAP, 7]


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_late_joiner_gets_the_whole_history(is_idle):
    with ZmqPublisher(PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK)) as publisher:
        for number in range(100):
            publisher.publish(batch(number))
        with subscriber(publisher) as reader:
            if not is_idle:
                publisher.publish(batch(100))
            assert told(take(reader, 100 + (not is_idle))) == list(range(100 + (not is_idle)))


def test_a_late_joiner_whose_history_is_gone():
    config = PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK, replay_batches=5)
    with ZmqPublisher(config) as publisher:
        for number in range(100):
            publisher.publish(batch(number))
        while publisher.stats().sent_batches < 100:
            time.sleep(0)
        with subscriber(publisher) as reader:
            items = take(reader, 6)
            assert told(items) == [ResyncReason.LATE_JOIN, 95, 96, 97, 98, 99]
            assert not items[0].is_from_start


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("num_of_new_life", [1, 3, 5, 9])
def test_a_restart(replay, num_of_new_life):
    """The new life's sequence is lower than, equal to, or higher than what is expected, when it is heard again."""
    with Peer() as peer, subscriber(peer, replay=replay) as reader:
        peer.await_subscriber()
        for sequence in range(5):
            peer.send(sequence)
        assert told(take(reader, 5)) == list(range(5))
        endpoint, replay_endpoint = peer.endpoint, peer.replay_endpoint
        peer.close()
        with Peer(endpoint, replay_endpoint=replay_endpoint) as again:
            for sequence in range(num_of_new_life):
                again.send(sequence, life=1, is_lost=True)
            items = again.await_subscriber(reader)
            again.send(num_of_new_life, life=1)
            while not items or not isinstance(items[-1], Delivered) or items[-1].sequence != num_of_new_life:
                items += take(reader, 1)
            assert isinstance(items[0], Resync)
            held = [item for item in items if isinstance(item, Delivered)]
            assert {item.batch.events[0].group_idx for item in held} == {1}
            if replay:
                assert told(held) == list(range(num_of_new_life + 1))
                assert [item.is_from_start for item in items if isinstance(item, Resync)] == [True]


def test_a_publisher_that_connects_to_a_subscriber_that_binds():
    config = SubscriberConfig(sources=(SourceConfig(endpoint=LOOPBACK, bind=True),))
    with Subscriber(config) as reader:
        endpoint = reader.endpoints[0]
        with Peer(endpoint, bind=False) as one:
            assert one.await_subscriber(reader) == []
            one.send(0)
            assert told(take(reader, 1)) == [0]
        with Peer(endpoint, bind=False) as two:
            items = two.await_subscriber(reader)
            two.send(1, life=1)  # the very number that was to come
            items += take(reader, 2 - len(items))
            assert told(items) == [ResyncReason.RECONNECTED, 1]


def test_publishers_with_topics_of_their_own_are_told_apart():
    with Peer() as peer, subscriber(peer, replay=False) as reader:
        peer.await_subscriber()
        for sequence in range(3):
            for topic in (b"a", b"b"):
                peer.send(sequence, frames=[topic, encode_sequence(sequence), payload(sequence)])
        items = take(reader, 6)
        assert [(item.topic, item.sequence) for item in items] == [(t, s) for s in range(3) for t in "ab"]


def test_more_topics_than_are_told_apart():
    with Peer() as peer, subscriber(peer, replay=False, max_topics=2) as reader:
        peer.await_subscriber()
        for topic in (b"a", b"b", b"c", b"a"):
            peer.send(0, frames=[topic, encode_sequence(topic == b"a" and len(peer.history)), payload(0)])
            peer.history.append(topic)
        items = take(reader, 3 + 1)
        assert [item.topic for item in items] == ["a", "b", "a", "a"]
        assert reader.stats().discarded == 1


def test_a_slow_subscriber_learns_what_it_missed():
    config = PublisherConfig(endpoint=LOOPBACK, hwm=2, replay_endpoint=LOOPBACK)
    with ZmqPublisher(config) as publisher, subscriber(publisher, hwm=2) as reader:
        publisher.publish(batch(0))
        assert told(take(reader, 1)) == [0]
        big = [BlockRemoved(block_hashes=list(range(1 << 62, (1 << 62) + 20_000)), medium="GPU", group_idx=0)]
        for number in range(1, 200):
            publisher.publish(KVEventBatch(ts=float(number), events=big))
        while publisher.stats().sent_batches < 200:
            time.sleep(0)
        items = []
        publisher.publish(batch(200))
        while not (items and isinstance(items[-1], Delivered) and items[-1].sequence >= 200):
            item = reader.poll(0.2)
            items += [] if item is None else [item]
            if item is None:  # the last ones were lost too, and one more shows it
                publisher.publish(batch(200))
        assert_unbroken(items, first=1)


def assert_unbroken(items, *, first):
    expected = first
    for item in items:
        if isinstance(item, Resync):
            expected = item.got
        else:
            assert item.sequence == expected
            expected += 1


def test_a_drop_of_the_queue_is_seen_even_if_nothing_follows():
    config = PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK, max_queued_bytes=1000)
    with ZmqPublisher(config) as publisher, subscriber(publisher) as reader:
        publisher.publish(batch(0))
        publisher.publish(KVEventBatch(ts=1.0, events=[BlockRemoved(block_hashes=[7] * 1000, medium="GPU")]))
        items = take(reader, 3)
        assert (items[0].sequence, items[1].reason, items[2].sequence) == (0, ResyncReason.GAP, 2)
        assert items[2].batch.events == []
        assert publisher.stats().dropped_batches == 1


def hostile_frames():
    good = payload(7)
    yield from (
        [b""],
        [b"", b""],
        [b"", b"\0" * 7, good],
        [b"", b"\0" * 9, good],
        [b"", END, good],
        [b"", encode_sequence(1), good, b""],
        [b""] * 1000,
    )


def test_frames_without_a_sequence_are_counted_and_skipped():
    with Peer() as peer, subscriber(peer) as reader:
        peer.await_subscriber()
        peer.send(0)
        num = 0
        for frames in hostile_frames():
            peer.send(0, frames=frames)
            num += 1
        peer.send(1)
        assert told(take(reader, 2)) == [0, 1]
        while reader.stats().malformed < num:
            assert reader.poll(0.01) is None


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\xc1",
        payload(1)[:-1],
        msgspec.msgpack.encode([1.0, [["BlockStored"]], 0]),
        b"\x93\xcb" + b"\0" * 8 + b"\xdd\x7f\xff\xff\xff",
        b"\x91" * 100_000,
    ],
)
def test_a_payload_that_cannot_be_read_is_a_resync(bad):
    with Peer() as peer, subscriber(peer) as reader:
        peer.await_subscriber()
        peer.send(0)
        peer.send(1, frames=[b"", encode_sequence(1), bad])
        peer.history.append([b"", encode_sequence(1), bad])
        peer.send(2)
        assert told(take(reader, 3)) == [0, ResyncReason.MALFORMED, 2]
        assert reader.stats().malformed == 1


def test_a_frame_that_is_too_long_costs_the_connection_and_nothing_else():
    limits = WireLimits(max_payload_bytes=10_000)
    with Peer() as peer, subscriber(peer, limits=limits) as reader:
        peer.await_subscriber()
        peer.send(0)
        assert told(take(reader, 1)) == [0]
        peer.send(1, frames=[b"", encode_sequence(1), b"\0" * 1_000_000])
        items = peer.await_subscriber(reader)
        peer.send(1)
        assert told(items + take(reader, 1 - len(items))) == [1]


def test_a_replay_endpoint_that_sends_rubbish_without_end():
    with Peer() as peer:
        rubbish = zmq.Context()
        router = rubbish.socket(zmq.ROUTER)
        peer.replay_endpoint = Peer.bind(router, LOOPBACK)

        def talk():
            client, *_ = router.recv_multipart()
            for _ in range(300):
                router.send_multipart([client, b"x", b"y"])
            router.send_multipart([client, b"", b"", encode_sequence(5), b"\xc1"])
            router.send_multipart([client, b"", b"", encode_sequence(3), b"\xc1"])

        talker = threading.Thread(target=talk)
        talker.start()
        with subscriber(peer, replay_timeout_s=0.1, max_replay_messages=100) as reader:
            peer.await_subscriber()
            peer.send(4)
            assert told(take(reader, 2)) == [ResyncReason.LATE_JOIN, 4]
            assert reader.stats().malformed >= 100
        talker.join()
        rubbish.destroy(linger=0)


def test_hostile_replay_clients_do_not_hold_up_the_publisher():
    config = PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK)
    context = zmq.Context()
    with ZmqPublisher(config) as publisher:
        big = [BlockRemoved(block_hashes=list(range(1 << 62, (1 << 62) + 5_000)), medium="GPU", group_idx=0)]
        for number in range(300):
            publisher.publish(KVEventBatch(ts=float(number), events=big))
        stuck = context.socket(zmq.DEALER)
        stuck.set_hwm(1)
        stuck.connect(publisher.replay_endpoint)
        for _ in range(1000):  # never reads
            try:
                stuck.send_multipart([b"", encode_sequence(0)], zmq.NOBLOCK)
            except zmq.Again:
                stuck.poll(1, zmq.POLLOUT)
        garbage = context.socket(zmq.DEALER)
        garbage.connect(publisher.replay_endpoint)
        for frames in ([b""], [b"", b"short"], [b"a", b"b", b"c"], [b"", b"\0" * 9], [b"x" * 100_000, b""]):
            garbage.send_multipart(frames)
        with subscriber(publisher) as reader:
            items = take(reader, 300)
            assert [item.sequence for item in items] == list(range(300))
            for number in range(300, 400):
                publisher.publish(batch(number))
            assert told(take(reader, 100)) == list(range(300, 400))
            slowest = 0.0
            for number in range(400, 420):  # a sender that is free delivers at once
                start = time.monotonic()
                publisher.publish(batch(number))
                take(reader, 1)
                slowest = max(slowest, time.monotonic() - start)
            assert slowest < 1.0
        assert publisher.stats().replay_requests_refused > 0
    context.destroy(linger=0)


def test_asyncio():
    async def read(reader, num):
        items = []
        async for item in reader:
            items.append(item)
            if len(items) == num:
                return items
        return items

    async def play():
        config = PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK)
        with ZmqPublisher(config) as publisher, subscriber(publisher) as reader:
            assert await reader.poll_async(0.01) is None
            reading = asyncio.create_task(read(reader, 200))
            for number in range(200):
                publisher.publish(batch(number))
                if number % 20 == 0:
                    await asyncio.sleep(0)
            items = await asyncio.wait_for(reading, PATIENCE_S)
            assert told(items) == list(range(200))
            waiting = asyncio.create_task(reader.poll_async())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            waiting = asyncio.create_task(reader.poll_async())
            await asyncio.sleep(0)
            reader.close()
            assert await asyncio.wait_for(waiting, PATIENCE_S) is None

    asyncio.run(play())


def test_closing_from_another_thread_ends_the_iteration():
    with Peer() as peer:
        reader = subscriber(peer).start()
        items, has_item = [], threading.Event()

        def read():
            for item in reader:
                items.append(item)
                has_item.set()

        thread = threading.Thread(target=read)
        thread.start()
        peer.await_subscriber()
        peer.send(0)
        assert has_item.wait(PATIENCE_S)

        def intrude():
            while True:  # until the other one waits again
                reader.poll(0)

        with pytest.raises(InputError, match="one thread"):
            intrude()
        reader.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        reader.close()
        assert reader.poll(1) is None
        assert list(reader) == []


def test_a_subscriber_that_cannot_bind():
    with Peer() as peer:
        reader = subscriber(peer, bind=True)
        with pytest.raises(InputError, match="cannot bind"):
            reader.start()
        reader.close()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SourceConfig(endpoint="tcp://*:5557"),
        lambda: SourceConfig(endpoint="nonsense"),
        lambda: SourceConfig(replay_endpoint="tcp://x"),
        lambda: SubscriberConfig(sources=()),
        lambda: SubscriberConfig(hwm=0),
        lambda: SubscriberConfig(replay_timeout_s=0.0),
        lambda: SubscriberConfig(heartbeat_s=-1.0),
    ],
)
def test_impossible_configurations(wrong):
    with pytest.raises(InputError):
        wrong()


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="there is no /proc here")
def test_nothing_is_left_open():
    def cycle():
        with ZmqPublisher(PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK)) as publisher:
            publisher.publish(batch(0))
            with subscriber(publisher) as reader:
                take(reader, 1)

    cycle()
    before = len(list(OPEN_FILES.iterdir())), threading.active_count()
    for _ in range(10):
        cycle()
    assert (len(list(OPEN_FILES.iterdir())), threading.active_count()) == before


class View:
    """What a subscriber makes of the items: blocks, and whether it may be all."""

    def __init__(self):
        self.blocks = set()
        self.is_complete = True

    def apply(self, item):
        if isinstance(item, Resync):
            self.blocks.clear()
            self.is_complete = item.is_from_start
            return
        for event in item.batch.events:
            if isinstance(event, AllBlocksCleared):
                self.blocks.clear()
                self.is_complete = True
            elif event.medium == "GPU":
                self.blocks.discard(event.block_hashes[0])
            else:
                self.blocks.add(event.block_hashes[0])


class Engine:
    """A publisher that drops, loses, forgets and restarts. Its blocks are stored by events whose medium is not GPU."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.peer = Peer()
        self.life = self.sequence = 0
        self.blocks = set()

    def step(self):
        for _ in range(self.chance.randrange(1, 30)):
            block, stores = self.chance.randrange(20), self.chance.random() < 0.6
            (self.blocks.add if stores else self.blocks.discard)(block)
            event = BlockRemoved(block_hashes=[block], medium="CPU" if stores else "GPU", group_idx=0)
            is_dropped, is_lost = self.chance.random() < 0.05, self.chance.random() < 0.1
            self.send([event], is_dropped=is_dropped, is_lost=is_lost)
        if self.chance.random() < 0.4:
            del self.peer.history[: self.chance.randrange(len(self.peer.history) + 1)]

    def send(self, events, *, is_dropped=False, is_lost=False):
        content = encode_batch(KVEventBatch(ts=self.life + self.sequence / 1e6, events=events))
        frames = [b"", encode_sequence(self.sequence), content]
        self.sequence += 1
        if not is_dropped:
            self.peer.history.append(frames)
            if not is_lost:
                self.peer.pub.send_multipart(frames)
        return content

    def restart(self):
        endpoint, replay_endpoint = self.peer.endpoint, self.peer.replay_endpoint
        self.peer.close()
        self.peer = Peer(endpoint, replay_endpoint=replay_endpoint)
        self.life, self.sequence, self.blocks = self.life + 1, self.chance.choice([0, self.sequence]), set()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("replay", [True, False])
def test_the_view_is_right_or_says_that_it_is_not(seed, replay):
    engine, view = Engine(seed), View()
    with subscriber(engine.peer, replay=replay, replay_timeout_s=PATIENCE_S) as reader:
        engine.peer.await_subscriber()
        for _ in range(12):
            engine.step()
            if engine.chance.random() < 0.3:
                engine.restart()
                for item in engine.peer.await_subscriber(reader):
                    view.apply(item)
            last = engine.send([])  # which is heard, and after it the view is as it is
            item = None
            while not (isinstance(item, Delivered) and item.payload == last):
                (item,) = take(reader, 1)
                view.apply(item)
            assert view.blocks == engine.blocks if view.is_complete else view.blocks <= engine.blocks
    engine.peer.close()
