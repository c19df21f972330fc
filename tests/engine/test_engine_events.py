"""What an engine publishes is what its index holds, at every step."""

from hash_runner import HashEngine

from octavo.engine.event_feed import HEARTBEAT_S, EventFeed, published_plan
from octavo.events import AllBlocksCleared, BlockRemoved, BlockStored, external_hashes
from octavo.testing import full, small_model, state, window
from rigs.in_process_publisher import InProcessPublisher


class Listener:
    """What can be found, from events alone."""

    def __init__(self, num_groups):
        self.groups = [set() for _ in range(num_groups)]
        self.num_removed = 0

    def __call__(self, batch):
        for event in batch.events:
            match event:
                case AllBlocksCleared():
                    for group in self.groups:
                        group.clear()
                case BlockRemoved():
                    self.groups[event.group_idx] -= set(event.block_hashes)
                    self.num_removed += len(event.block_hashes)
                case BlockStored():
                    self.groups[event.group_idx] |= set(event.block_hashes)


def test_the_events_of_each_step_are_what_changed():
    publisher = InProcessPublisher()
    engine = HashEngine(
        small_model(state(), window(9), full()),
        spare=0.2,
        enable_events=True,
        make_feed=lambda manager: EventFeed(manager, publisher, clock=lambda: 0.0),
    )
    listener = Listener(len(engine.manager.config.groups))
    publisher.subscribe(listener)

    def check():
        assert listener.groups == [set(external_hashes(list(index))) for index in engine.manager.pool.indexes]

    for i in range(6):
        engine.add(f"r{i}", [(i * 11 + k) % 61 for k in range(40)], 20)
    while engine.has_unfinished:
        engine.run_step()
        check()
        if engine.counters.steps == 20:
            engine.drop("r2")
            check()
    assert listener.num_removed > 0
    assert any(listener.groups)
    engine.reset_prefix_cache()
    check()
    assert not any(listener.groups)


def test_the_plan_is_told_first_and_at_every_heartbeat_however_the_clock_jumps():
    publisher, feeds, told, now = InProcessPublisher(), [], [], [1000.0]

    def make_feed(manager):
        feeds.append(EventFeed(manager, publisher, clock=lambda: now[0]))
        return feeds[0]

    engine = HashEngine(small_model(state(), full()), spare=0.2, enable_events=True, make_feed=make_feed)
    publisher.subscribe(told.append)
    for now[0] in (1000.0, 1000.0 + HEARTBEAT_S / 2, 1000.0 + HEARTBEAT_S, 5000.0, 1000.0, 1001.0):
        feeds[0].publish()
    assert [batch.ts for batch in told] == [1000.0, 1000.0 + HEARTBEAT_S, 5000.0, 1000.0]
    assert all(batch.plan == published_plan(engine.manager.config) and not batch.events for batch in told)
    assert [group.kind for group in told[0].plan.groups] == [group.spec.kind for group in engine.manager.config.groups]


class EmptyStore:
    """What is below the device: nothing, on stores that are off now and then."""

    is_telling = False
    num_told_blocks = 0
    stores_off = ()

    def take_events(self):
        return []


def test_the_plan_is_told_at_once_when_a_shared_store_is_off_or_on_again():
    publisher, feeds, told = InProcessPublisher(), [], []

    def make_feed(manager):
        feeds.append(EventFeed(manager, publisher, clock=lambda: 0.0))
        return feeds[0]

    HashEngine(small_model(full()), spare=0.2, enable_events=True, make_feed=make_feed)
    publisher.subscribe(told.append)
    below = EmptyStore()
    feeds[0].follow(below)
    for below.stores_off in ([], ["redis"], ["redis"], ["redis", "objects"], [], []):
        feeds[0].publish()
    assert [batch.plan.stores_off for batch in told] == [[], ["redis"], ["redis", "objects"], []]
