"""Many subscribers with one ZMQ context: it is there while any of them is open, and none has threads of its own."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from octavo.errors import InputError
from octavo.events import SharedContext, SourceConfig, Subscriber, SubscriberConfig
from rigs.event_peer import Peer, subscriber, take, told

THREADS, FILES = Path("/proc/self/task"), Path("/proc/self/fd")
COUNT = 10


def count(folder):
    return len(list(folder.iterdir()))


def test_all_hear_and_none_that_ends_disturbs_another():
    contexts = SharedContext(has_many_sockets=True)
    with Peer() as peer, ExitStack() as stack:
        before = count(THREADS)
        readers = [stack.enter_context(subscriber(peer, contexts=contexts)) for _ in range(COUNT)]
        for reader in readers:
            peer.await_subscriber(reader)
        assert count(THREADS) == before + 2
        for reader in readers[: COUNT // 2]:
            reader.close()
        peer.send(0)
        assert [told(take(reader, 1)) for reader in readers[COUNT // 2 :]] == [[0]] * (COUNT // 2)
        stack.close()
        assert count(THREADS) == before
        with subscriber(peer, contexts=contexts) as reader:
            peer.await_subscriber(reader)


def test_more_subscribers_than_a_context_of_zmq_has_sockets_for_by_default():
    """By default it has 1,023, and each subscriber takes three."""
    contexts, source = SharedContext(has_many_sockets=True), SourceConfig(endpoint="tcp://127.0.0.1:1")
    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(Subscriber(SubscriberConfig(sources=(source,)), contexts=contexts))


def test_one_that_cannot_open_leaves_nothing_behind():
    contexts = SharedContext()
    with Peer() as peer, subscriber(peer, contexts=contexts) as reader:
        peer.await_subscriber(reader)
        before = count(FILES)
        taken = SubscriberConfig(sources=(SourceConfig(endpoint=peer.endpoint, bind=True),))
        for _ in range(COUNT):
            with pytest.raises(InputError, match="cannot bind"):
                Subscriber(taken, contexts=contexts).start()
        while count(FILES) >= before + COUNT:  # ZMQ's own thread closes them; what else the process opens is its own
            pass
        peer.send(0)
        assert told(take(reader, 1)) == [0]
