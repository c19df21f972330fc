"""Publisher and subscriber over real sockets: whatever others send, it costs them, and nobody else."""

import threading

import msgspec
import pytest
import zmq

from octavo.events.messages import BlockRemoved, KVEventBatch
from octavo.events.publisher import ZmqPublisher
from octavo.events.publisher_config import PublisherConfig
from octavo.events.session import ResyncReason
from octavo.events.wire import WireLimits, encode_sequence
from rigs.event_peer import END, LOOPBACK, Peer, batch, payload, subscriber, take, told


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
        with subscriber(peer, replay_timeout_s=1.0, max_replay_messages=100) as reader:
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
            for number in range(400, 420):
                publisher.publish(batch(number))
                assert told(take(reader, 1)) == [number]
        assert publisher.stats().replay_requests_refused > 0
    context.destroy(linger=0)
