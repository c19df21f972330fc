"""Publisher and subscriber over real sockets: whatever happens between them, the subscriber's view equals the
publisher's state, or it has said that it does not know."""

import asyncio
import errno
import gc
import select
import subprocess
import sys
import threading
import time
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
import zmq

from octavo.errors import InputError
from octavo.events.messages import BlockRemoved, KVEventBatch
from octavo.events.published_plan import PublishedPlan
from octavo.events.publisher import ZmqPublisher
from octavo.events.publisher_config import PublisherConfig
from octavo.events.session import Delivered, Resync, ResyncReason, Silence
from octavo.events.subscriber import Subscriber
from octavo.events.subscriber_config import SourceConfig, SubscriberConfig
from octavo.events.wire import encode_batch, encode_sequence
from rigs.event_peer import LOOPBACK, PATIENCE_S, Peer, batch, payload, subscriber, take, told

OPEN_FILES = Path("/proc/self/fd")
QUIET_S = 0.05
"""After which nothing more is expected, where nothing is the right answer."""


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
            for sequence in range(200, 20_000):  # as much comes as goes
                if take(reader, 1)[0].endpoint == quiet.endpoint:
                    return
                busy.send(sequence)
            pytest.fail("only the busy source was heard")


@pytest.mark.parametrize("num_turns", range(6))
def test_a_reader_that_is_cancelled_ends_whatever_comes_at_that_moment(num_turns):
    async def read(reader):
        async for _ in reader:
            pass

    async def play():
        with Peer() as peer, subscriber(peer, recheck_s=PATIENCE_S) as reader:
            peer.await_subscriber(reader)
            peer.send(0)
            take(reader, 1)
            reading = asyncio.create_task(read(reader))
            for _ in range(20):
                await asyncio.sleep(0)  # it waits, with a time limit
            descriptors = [socket.getsockopt(zmq.FD) for socket in reader._sockets()]
            peer.send(1)
            assert any(select.select(descriptors, [], [], PATIENCE_S))
            for _ in range(num_turns):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading], timeout=PATIENCE_S)
            assert reading.cancelled()

    asyncio.run(play())


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


def test_what_a_failed_replay_left_out_is_found_though_the_publisher_is_never_quiet(monkeypatch):
    monkeypatch.setattr("octavo.events.endpoint_reader._RECHECK_AFTER_FAILURE_S", 0.1)
    with Peer() as peer, subscriber(peer, recheck_s=0.05, replay_timeout_s=0.5) as reader:
        peer.await_subscriber()
        peer.send(0)
        assert told(take(reader, 1)) == [0]
        peer.is_mute = True
        peer.send(1, is_lost=True)
        peer.send(2)
        assert told(take(reader, 2)) == [ResyncReason.GAP, 2]
        peer.is_mute = False
        for sequence in count(3):
            peer.send(sequence)
            if told(take(reader, 1)) == [ResyncReason.GAP]:
                break
        assert told(take(reader, sequence + 1)) == list(range(sequence + 1))


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


def test_without_a_socket_for_its_replay_a_gap_is_a_resync(monkeypatch):
    opened = zmq.Context.socket
    with Peer() as peer, subscriber(peer, replay=True) as reader:
        peer.await_subscriber(reader)
        peer.send(0)
        assert told(take(reader, 1)) == [0]

        def refuse(context, kind, **options):
            if kind == zmq.DEALER:
                raise zmq.ZMQError(errno.EMFILE)
            return opened(context, kind, **options)

        monkeypatch.setattr(zmq.Context, "socket", refuse)
        for sequence in (2, 3):
            peer.send(sequence)
        assert told(take(reader, 3)) == [ResyncReason.GAP, 2, 3]


@pytest.mark.parametrize("is_idle", [True, False])
def test_a_late_joiner_gets_the_whole_history(is_idle):
    with ZmqPublisher(PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK)) as publisher:
        for number in range(100):
            publisher.publish(batch(number))
        with subscriber(publisher) as reader:
            if not is_idle:
                publisher.publish(batch(100))
            assert told(take(reader, 100 + (not is_idle))) == list(range(100 + (not is_idle)))


def test_a_subscriber_takes_all_that_a_publisher_keeps():
    assert SubscriberConfig().max_replay_messages > PublisherConfig().replay_batches


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
            async with asyncio.timeout(PATIENCE_S):
                items = await reading
            assert told(items) == list(range(200))
            waiting = asyncio.create_task(reader.poll_async())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            waiting = asyncio.create_task(reader.poll_async())
            await asyncio.sleep(0)
            reader.close()
            async with asyncio.timeout(PATIENCE_S):
                assert await waiting is None

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
    gc.collect()  # what earlier tests have left
    files, threads = len(list(OPEN_FILES.iterdir())), set(threading.enumerate())
    for _ in range(10):
        cycle()
    assert len(list(OPEN_FILES.iterdir())) <= files
    assert set(threading.enumerate()) <= threads


@pytest.mark.parametrize("fails", ["subscriber.Wakeup", "shared_context.new_context", "subscriber.EndpointReader"])
def test_a_subscriber_that_could_not_open_leaves_no_file_open_and_may_try_again(monkeypatch, fails):
    def refuse(*_):
        raise zmq.ZMQError(errno.EMFILE)

    with Peer() as peer, closing(subscriber(peer)) as reader:
        before = len(list(OPEN_FILES.iterdir()))
        with monkeypatch.context() as patch:
            patch.setattr(f"octavo.events.{fails}", refuse)
            with pytest.raises(zmq.ZMQError, match="Too many open files"):
                reader.start()
        assert len(list(OPEN_FILES.iterdir())) == before
        reader.start()
        peer.await_subscriber()


WITH_FEW_FILES = """
import os, resource, sys
from octavo.events import PublisherConfig, SourceConfig, Subscriber, SubscriberConfig, ZmqPublisher

endpoints = {"endpoint": "tcp://127.0.0.1:0", "replay_endpoint": "tcp://127.0.0.1:0"}
one = ZmqPublisher(PublisherConfig(**endpoints))
if sys.argv[1] == "Subscriber":
    one = Subscriber(SubscriberConfig(sources=(SourceConfig(endpoint="tcp://127.0.0.1:1"),)))
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
for _ in range(16):
    try:
        one.start()
        sys.exit("it has started")
    except Exception as error:
        print(error)
    os.close(taken.pop())
"""


@pytest.mark.parametrize("who", ["Subscriber", "ZmqPublisher"])
def test_too_few_files_are_an_error_and_not_the_end_of_the_process(who):
    command = [sys.executable, "-c", WITH_FEW_FILES, who]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("Too many open files") == 16
