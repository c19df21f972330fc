"""What a watch tells of a socket's connections, whenever it looks."""

import struct

import pytest
import zmq

from octavo.events.connection_watch import ConnectionWatch, NewConnection

MADE, LOST = zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED
NOW = 100.0


@pytest.fixture
def look():
    """A watch that looks after ZMQ has told of these events."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket, context.socket(zmq.PAIR) as teller:
        watch = ConnectionWatch(context, socket, is_bound=False)
        watch.monitor.close(linger=0)
        watch.monitor = context.socket(zmq.PAIR)
        teller.bind("inproc://told")
        watch.monitor.connect("inproc://told")

        def look(*events):
            for event in events:
                teller.send_multipart([struct.pack("=hi", event, 0), b"tcp://127.0.0.1:1"])
            return watch.look(NOW)

        yield look
        watch.close()


def test_a_connection_is_told_once(look):
    assert look() is None
    assert look(MADE) is NewConnection.FIRST
    assert look() is None
    assert look(LOST) is None
    assert look(MADE) is NewConnection.AFTER_LOSS
    assert look(LOST, MADE, LOST, MADE) is NewConnection.AFTER_LOSS


def test_a_connection_that_was_made_and_lost_between_two_looks_was_lost(look):
    """So the next one comes after a loss, and what was missed is asked for."""
    assert look(MADE, LOST) is NewConnection.FIRST
    assert look(MADE, LOST) is NewConnection.AFTER_LOSS
    assert look(MADE) is NewConnection.AFTER_LOSS
