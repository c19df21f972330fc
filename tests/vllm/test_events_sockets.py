"""Events over sockets, with one side vLLM's own: its publisher and our subscriber, our publisher and its decoder."""

import time
import warnings

import msgspec
import pytest
import zmq

from octavo.events import (
    BlockRemoved,
    BlockStored,
    Delivered,
    KVEventBatch,
    PublisherConfig,
    Resync,
    ResyncReason,
    SourceConfig,
    Subscriber,
    SubscriberConfig,
    ZmqPublisher,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own
    from vllm.distributed import kv_events as vllm_events

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]

LOOPBACK = "tcp://127.0.0.1:0"
PATIENCE_S = 20.0
END = b"\xff" * 8


def stored(classes, number):
    event = classes.BlockStored(
        block_hashes=[number, 1 << 63],
        parent_block_hash=None,
        token_ids=list(range(32)),
        block_size=16,
        lora_id=None,
        medium="GPU",
        lora_name=None,
        extra_keys=[("salt",), None],
        group_idx=0,
        kv_cache_spec_kind="full_attention",
    )
    removed = classes.BlockRemoved(block_hashes=[number], medium="CPU", group_idx=1)
    return classes.KVEventBatch(ts=float(number), events=[event, removed])


class Ours:
    BlockStored, BlockRemoved, KVEventBatch = BlockStored, BlockRemoved, KVEventBatch


def free_ports(num):
    context = zmq.Context()
    sockets = [context.socket(zmq.PUB) for _ in range(num)]
    ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in sockets]
    context.destroy(linger=0)
    return ports


@pytest.fixture
def vllm_publisher():
    made = []

    def publisher(**options):
        live, replay = free_ports(2)
        endpoints = f"tcp://*:{live}", f"tcp://*:{replay}"
        made.append(
            vllm_events.ZmqEventPublisher(0, endpoint=endpoints[0], replay_endpoint=endpoints[1], topic="kv", **options)
        )
        return made[-1], *(f"tcp://127.0.0.1:{port}" for port in (live, replay))

    yield publisher
    for publisher in made:
        publisher.shutdown()


def subscriber(endpoint, replay_endpoint):
    source = SourceConfig(endpoint=endpoint, replay_endpoint=replay_endpoint, topics=("kv",))
    return Subscriber(SubscriberConfig(sources=(source,)))


def take(reader, num):
    items = []
    while len(items) < num:
        items.append(reader.poll(PATIENCE_S))
        assert items[-1] is not None
    return items


def test_our_subscriber_reads_all_that_vllm_publishes(vllm_publisher):
    publisher, endpoint, replay_endpoint = vllm_publisher()
    for number in range(50):
        publisher.publish(stored(vllm_events, number))
    with subscriber(endpoint, replay_endpoint) as reader:  # it joins late
        items = take(reader, 50)
        for number in range(50, 100):
            publisher.publish(stored(vllm_events, number))
        items += take(reader, 50)
        assert all(isinstance(item, Delivered) for item in items)
        assert [item.sequence for item in items] == list(range(100))
        assert [item.batch.events for item in items] == [stored(Ours, number).events for number in range(100)]
        assert {(item.topic, item.batch.data_parallel_rank) for item in items} == {("kv", 0)}
        assert reader.stats().resyncs == 0


def test_a_late_join_that_vllms_buffer_no_longer_reaches(vllm_publisher):
    publisher, endpoint, replay_endpoint = vllm_publisher(buffer_steps=5)
    for number in range(20):
        publisher.publish(stored(vllm_events, number))
    give_up_at = time.monotonic() + PATIENCE_S
    while not publisher._buffer or publisher._buffer[-1][0] < 19:
        assert time.monotonic() < give_up_at
    with subscriber(endpoint, replay_endpoint) as reader:
        first, *rest = take(reader, 6)
        assert isinstance(first, Resync)
        assert (first.reason, first.got) == (ResyncReason.LATE_JOIN, 15)
        assert [item.sequence for item in rest] == [15, 16, 17, 18, 19]


def test_a_long_history_from_vllm_comes_whole_or_is_a_resync(vllm_publisher):
    """Its replay socket drops what its client cannot take fast enough."""
    publisher, endpoint, replay_endpoint = vllm_publisher()
    for number in range(9000):
        publisher.publish(stored(vllm_events, number))
    with subscriber(endpoint, replay_endpoint) as reader:
        expected, last = 0, None
        while last is None or last.sequence < 8999:
            (item,) = take(reader, 1)
            if isinstance(item, Resync):
                expected = item.got
            else:
                assert item.sequence == expected
                expected, last = expected + 1, item


def test_vllms_classes_read_our_stream_and_our_replay():
    context = zmq.Context()
    decoder = msgspec.msgpack.Decoder(type=vllm_events.KVEventBatch)
    config = PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK, topic="kv")
    with ZmqPublisher(config) as publisher:
        sub = context.socket(zmq.SUB)
        sub.subscribe(b"kv")
        sub.connect(publisher.endpoint)
        sent = 0
        while not sub.poll(10):  # until the subscription has arrived
            publisher.publish(stored(Ours, sent))
            sent += 1
        for number in range(sent, sent + 10):
            publisher.publish(stored(Ours, number))
        sent += 10
        number = -1
        while number < sent - 1:
            assert sub.poll(1000 * PATIENCE_S)
            topic, sequence, payload = sub.recv_multipart()
            number = int.from_bytes(sequence, "big")
            expected = stored(vllm_events, number)
            expected.data_parallel_rank = 0
            assert (topic, decoder.decode(payload)) == (b"kv", expected)
        dealer = context.socket(zmq.DEALER)
        dealer.connect(publisher.replay_endpoint)
        dealer.send_multipart([b"", (3).to_bytes(8, "big")])
        got = []
        while True:
            assert dealer.poll(1000 * PATIENCE_S)
            frames = dealer.recv_multipart()
            if frames == [b"", b"", END, b""]:
                break
            empty, topic, sequence, payload = frames
            assert (empty, topic) == (b"", b"kv")
            assert decoder.decode(payload).ts == float(int.from_bytes(sequence, "big"))
            got.append(int.from_bytes(sequence, "big"))
        assert got == list(range(3, sent))
    context.destroy(linger=0)
