"""A subscriber's view over real sockets equals the publisher's state, or it has said that it does not know."""

import random

import pytest

from octavo.events.messages import AllBlocksCleared, BlockRemoved, KVEventBatch
from octavo.events.session import Delivered, Resync
from octavo.events.wire import encode_batch, encode_sequence
from rigs.event_peer import Peer, subscriber, take


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
        self.is_complete |= item.is_whole
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
            if self.chance.random() < 0.1:
                self.tell_all()
        if self.chance.random() < 0.4:
            del self.peer.history[: self.chance.randrange(len(self.peer.history) + 1)]

    def tell_all(self, *, loss=0.02):
        """In several messages, each of which may be lost, while blocks come and go."""
        since = self.sequence
        for block in range(20):
            if self.chance.random() < 0.1:
                self.blocks.discard(block)
                self.send([BlockRemoved(block_hashes=[block], medium="GPU", group_idx=0)])
            if block in self.blocks:
                event = BlockRemoved(block_hashes=[block], medium="CPU", group_idx=0)
                is_dropped, is_lost = self.chance.random() < loss / 2, self.chance.random() < loss
                self.send([event], is_dropped=is_dropped, is_lost=is_lost)
        self.send([], whole_since=since)

    def send(self, events, *, is_dropped=False, is_lost=False, whole_since=None):
        batch = KVEventBatch(ts=self.life + self.sequence / 1e6, events=events, whole_since=whole_since)
        content = encode_batch(batch)
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
    with subscriber(engine.peer, replay=replay) as reader:
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
        engine.tell_all(loss=0.0)
        while not view.is_complete:
            (item,) = take(reader, 1)
            view.apply(item)
    engine.peer.close()
