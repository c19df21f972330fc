"""Publishers: what they accept, drop, keep and send again; no sockets but those of `ZmqPublisher` itself."""

import socket
import threading

import pytest
import zmq

from octavo.errors import InputError
from octavo.events.endpoints import check_endpoint, endpoint_of_rank
from octavo.events.messages import BlockRemoved, BlockStored, KVEventBatch
from octavo.events.publisher import ZmqPublisher, estimated_bytes
from octavo.events.publisher_config import PublisherConfig
from octavo.events.replay import END_SEQUENCE, ReplayBuffer, ReplayRequests, Sent
from octavo.events.wire import encode_batch
from rigs.ports import free_port

LOOPBACK = "tcp://127.0.0.1:0"


def batch(number, *, num_hashes=1):
    return KVEventBatch(ts=float(number), events=[BlockRemoved(block_hashes=[number] * num_hashes, medium="GPU")])


@pytest.mark.parametrize(
    ("endpoint", "rank", "expected"),
    [
        ("tcp://*:5557", 0, "tcp://*:5557"),
        ("tcp://*:5557", 3, "tcp://*:5560"),
        ("tcp://[::1]:10", 1, "tcp://[::1]:11"),
        ("tcp://*:0", 3, "tcp://*:0"),
        ("inproc://cache", 2, "inproc://cache_dp2"),
        ("ipc:///tmp/kv", 2, "ipc:///tmp/kv_dp2"),
    ],
)
def test_endpoints_of_ranks(endpoint, rank, expected):
    assert endpoint_of_rank(check_endpoint(endpoint), rank) == expected


@pytest.mark.parametrize("endpoint", ["tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://[::]:5557", "tcp://eth0:5557"])
@pytest.mark.parametrize("name", ["endpoint", "replay_endpoint"])
def test_events_leave_the_machine_only_with_keys_or_permission(endpoint, name, tmp_path):
    with pytest.raises(InputError, match="contain the prompts"):
        PublisherConfig(**{name: endpoint})
    PublisherConfig(**{name: endpoint}, keys=tmp_path)
    PublisherConfig(**{name: endpoint}, allows_plain=True)


@pytest.mark.parametrize(
    "endpoint", ["tcp://127.0.0.1:5557", "tcp://127.9.9.9:1", "tcp://[::1]:5557", "tcp://localhost:1", "ipc:///tmp/kv"]
)
def test_endpoints_of_this_machine_need_no_keys(endpoint):
    PublisherConfig(endpoint=endpoint, replay_endpoint=endpoint)


def test_a_publisher_binds_the_port_that_it_is_given():
    port = free_port()
    with ZmqPublisher(PublisherConfig(endpoint=f"tcp://127.0.0.1:{port}")) as publisher:
        with socket.create_connection(("127.0.0.1", port)):
            pass
        with pytest.raises(InputError, match=rf"cannot bind tcp://127.0.0.1:{port}"):
            ZmqPublisher(PublisherConfig(endpoint=publisher.endpoint)).start()


@pytest.mark.parametrize(
    "values",
    [
        {"endpoint": "localhost:5557"},
        {"endpoint": "tcp://host"},
        {"endpoint": "tcp://host:70000"},
        {"endpoint": "http://host:1"},
        {"replay_endpoint": ""},
        {"data_parallel_rank": -1},
        {"hwm": 0},
        {"max_queued_batches": 0},
        {"close_timeout_s": -1.0},
        {"close_timeout_s": float("nan")},
        {"hwm": 1 << 31},
        {"data_parallel_rank": 1 << 16},
        {"data_parallel_rank": 1 << 64},
    ],
)
def test_impossible_configurations(values):
    with pytest.raises(InputError):
        PublisherConfig(**values)


def test_the_most_messages_that_may_wait_are_those_of_zmq():
    with ZmqPublisher(PublisherConfig(endpoint="tcp://127.0.0.1:0", hwm=(1 << 31) - 1)):
        pass


def test_a_port_beyond_the_last():
    with pytest.raises(InputError, match="65536"):
        ZmqPublisher(PublisherConfig(endpoint="tcp://127.0.0.1:65535", data_parallel_rank=1))


def test_an_address_in_use_is_refused_and_leaves_nothing():
    before = set(threading.enumerate())
    with ZmqPublisher(PublisherConfig(endpoint=LOOPBACK)) as first:
        second = ZmqPublisher(PublisherConfig(endpoint=first.endpoint, bind=True))
        with pytest.raises(InputError, match="cannot bind"):
            second.start()
        second.publish(batch(0))
        second.close()
    assert set(threading.enumerate()) <= before


def test_the_queue_is_bounded_by_count_and_bytes():
    for bound in ({"max_queued_batches": 3}, {"max_queued_bytes": 3 * estimated_bytes(batch(0))}):
        publisher = ZmqPublisher(PublisherConfig(endpoint=LOOPBACK, **bound))  # not started, so that nothing leaves
        for number in range(5):
            publisher.publish(batch(number))
        stats = publisher.stats()
        assert (stats.queued_batches, stats.dropped_batches, stats.next_sequence) == (3, 2, 5)
        publisher.close()
        publisher.publish(batch(5))
        assert publisher.stats().dropped_batches == 3


def test_closing_sends_what_is_queued_and_may_be_repeated():
    publisher = ZmqPublisher(PublisherConfig(endpoint=LOOPBACK, close_timeout_s=60.0))
    for number in range(500):
        publisher.publish(batch(number))
    publisher.start()
    publisher.close()
    publisher.close()
    publisher.start()
    stats = publisher.stats()
    assert (stats.sent_batches, stats.queued_batches, stats.queued_bytes) == (500, 0, 0)
    assert not any(thread.name.startswith("octavo-events") for thread in threading.enumerate())


def test_batches_that_cannot_be_sent_are_dropped_and_others_go_on(caplog):
    too_long = batch(0, num_hashes=100)
    impossible = KVEventBatch(ts=0.0, events=[BlockRemoved(block_hashes=[1 << 70], medium="GPU")])
    publisher = ZmqPublisher(PublisherConfig(endpoint=LOOPBACK, max_message_bytes=100, close_timeout_s=60.0))
    for sent in (batch(1), too_long, impossible, batch(2)):
        publisher.publish(sent)
    with publisher:
        pass
    stats = publisher.stats()
    assert (stats.dropped_batches, stats.sent_batches) == (2, 3), "an empty one shows the gap at the end"
    assert "batch 2 cannot be encoded" in caplog.text


@pytest.mark.parametrize("num_blocks", [0, 1, 100, 10_000])
def test_the_estimate_is_near_the_truth(num_blocks):
    stored = BlockStored(
        block_hashes=[(1 << 64) - 1 - i for i in range(num_blocks)],
        parent_block_hash=None,
        token_ids=[50_000 + i for i in range(16 * num_blocks)],
        block_size=16,
        lora_id=None,
        medium="GPU",
        lora_name=None,
        group_idx=0,
    )
    real = KVEventBatch(ts=1.0, events=[stored, BlockRemoved(block_hashes=[b"x" * 32] * num_blocks, medium="GPU")])
    assert 0.6 < estimated_bytes(real) / len(encode_batch(real)) < 2.5


def test_the_replay_buffer_is_bounded_by_count_and_bytes():
    buffer = ReplayBuffer(max_messages=3, max_bytes=10)
    for sequence, size in ((0, 4), (1, 4), (5, 4)):
        buffer.append(sequence, b"x" * size)
    assert [buffer.at(place)[0] for place in range(buffer.first, buffer.stop)] == [1, 5]
    assert [buffer.find(sequence) - buffer.first for sequence in (0, 1, 2, 5, 6)] == [0, 0, 1, 1, 2]
    for sequence in range(6, 12):
        buffer.append(sequence, b"")
    assert len(buffer) == 3
    buffer.append(12, b"x" * 11)
    assert (len(buffer), buffer.num_bytes) == (0, 0)


def test_a_client_that_does_not_read_waits_alone_and_is_given_up():
    buffer = ReplayBuffer(max_messages=100, max_bytes=1000)
    for sequence in range(10):
        buffer.append(sequence, b"x")
    requests = ReplayRequests(buffer, max_requests=4, patience_s=10.0)
    for start in (0, 0):
        requests.add(b"stuck", start, 0.0)
    requests.add(b"quick", 7, 0.0)
    got = []

    def send(client, sequence, payload):
        if client == b"stuck":
            return Sent.LATER
        got.append((sequence, payload))
        return Sent.DONE

    while requests.serve(send, max_messages=4, now=1.0):
        pass
    assert got == [(7, b"x"), (8, b"x"), (9, b"x"), (END_SEQUENCE, b"")]
    assert len(requests) == 2
    assert not requests.serve(send, max_messages=4, now=10.0)
    assert (len(requests), requests.num_refused) == (0, 2)


def test_requests_beyond_the_bound_are_refused():
    requests = ReplayRequests(ReplayBuffer(max_messages=1, max_bytes=1), max_requests=4, patience_s=1.0)
    for _ in range(1000):
        requests.add(b"greedy", 0, 0.0)
    assert (len(requests), requests.num_refused) == (4, 996)


def test_what_is_published_after_a_request_is_not_in_its_answer():
    buffer = ReplayBuffer(max_messages=100, max_bytes=1000)
    buffer.append(0, b"a")
    requests = ReplayRequests(buffer, max_requests=4, patience_s=10.0)
    requests.add(b"client", 0, 0.0)
    buffer.append(1, b"b")
    got = []
    requests.serve(lambda _, sequence, __: got.append(sequence) or Sent.DONE, max_messages=10, now=0.0)
    assert got == [0, END_SEQUENCE]


def test_publishing_wakes_a_sleeping_sender():
    context = zmq.Context()
    with ZmqPublisher(PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK)) as publisher:
        for number in range(50):
            publisher.publish(batch(number))
            dealer = context.socket(zmq.DEALER)
            dealer.connect(publisher.replay_endpoint)
            while True:  # until it has been sent, and not a moment longer
                dealer.send_multipart([b"", number.to_bytes(8, "big")])
                assert dealer.poll(5000)
                _, _, sequence, _ = dealer.recv_multipart()
                if int.from_bytes(sequence, "big") == number:
                    break
            dealer.close(linger=0)
    context.destroy(linger=0)
