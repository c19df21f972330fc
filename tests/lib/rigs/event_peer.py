"""A publisher of a test's own over real sockets, and a subscriber to it."""

import threading
import time

import zmq

from octavo.events import (
    BlockRemoved,
    Delivered,
    KVEventBatch,
    SourceConfig,
    Subscriber,
    SubscriberConfig,
    encode_batch,
    encode_sequence,
)

LOOPBACK = "tcp://127.0.0.1:0"
END = b"\xff" * 8
PATIENCE_S = 300.0
"""For what comes at once, unless the machine is busy."""


def batch(number, life=0, *, num_hashes=1):
    removed = BlockRemoved(block_hashes=[number] * num_hashes, medium="GPU", group_idx=life)
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
        self.stopping = self.is_mute = False
        self.answers.start()

    @staticmethod
    def bind(socket, endpoint):
        socket.setsockopt(zmq.LINGER, 1000)
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
            if self.is_mute:
                continue
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


def subscriber(peer, *, replay=True, contexts=None, **options):
    options.setdefault("replay_timeout_s", PATIENCE_S)
    source = {name: options.pop(name) for name in ("bind", "topics") if name in options}
    return Subscriber(
        SubscriberConfig(
            sources=(
                SourceConfig(
                    endpoint=peer.endpoint, replay_endpoint=peer.replay_endpoint if replay else None, **source
                ),
            ),
            **options,
        ),
        contexts=contexts,
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
