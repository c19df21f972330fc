"""Closing a publisher ends in time, whatever its clients do at that moment."""

import threading
from random import Random

import pytest
import zmq

from octavo.events.publisher import ZmqPublisher
from octavo.events.publisher_config import PublisherConfig
from rigs.event_peer import LOOPBACK, PATIENCE_S, batch

BIG = 1 << 60
"""A hash of nine bytes, so that an answer is more than what the buffers of a connection hold."""


@pytest.mark.parametrize("seed", range(20))
def test_clients_go_that_have_not_read_their_answers(seed):
    context = zmq.Context()
    publisher = ZmqPublisher(PublisherConfig(endpoint=LOOPBACK, replay_endpoint=LOOPBACK, close_timeout_s=0.05))
    publisher.start()
    for _ in range(12):
        publisher.publish(batch(BIG, num_hashes=100_000))
    clients = [context.socket(zmq.DEALER) for _ in range(40)]
    for client in clients:
        client.set_hwm(1)
        client.setsockopt(zmq.RCVBUF, 4096)
        client.connect(publisher.replay_endpoint)
        client.send_multipart([b"", bytes(8)])
    for client in clients:
        assert client.poll(1000 * PATIENCE_S)
    closing = threading.Timer(Random(seed).uniform(0, 0.003), publisher.close)
    closing.daemon = True
    closing.start()
    context.destroy(linger=0)
    closing.join(PATIENCE_S)
    assert not closing.is_alive()


def test_years_to_close_are_no_error():
    with ZmqPublisher(PublisherConfig(endpoint=LOOPBACK, close_timeout_s=1e9)) as publisher:
        publisher.publish(batch(0))
