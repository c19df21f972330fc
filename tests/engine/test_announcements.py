"""An engine tells what its disk holds after a restart, and all that it holds now and then: a router's view of it says
what the engine then resumes, whenever the router came."""

import random

import pytest
from workloads import families, generate, settle

from octavo.blocks import KVCacheManager
from octavo.engine.building import plan_for
from octavo.engine.engine import Engine
from octavo.engine.event_feed import EventFeed, published_plan
from octavo.engine.offloading import offload_maker
from octavo.engine.runner import ModelRunner
from octavo.engine.scheduler import SchedulerLimits
from octavo.events import (
    GroupView,
    PublisherConfig,
    Resync,
    SourceConfig,
    Subscriber,
    SubscriberConfig,
    ZmqPublisher,
    external_hashes,
)
from octavo.hashing import PLAIN, BlockHasher
from rigs.in_process_publisher import InProcessPublisher
from rigs.offload_always import offload_always

FAMILIES = ["llama", "gemma3", "qwen3_next"]
NEW_TOKENS = 4
LENGTHS = (40, 101, 130, 71)
PATIENCE_S = 300.0
KV_EVENTS = PublisherConfig(endpoint="tcp://127.0.0.1:1")  # never opened


family = families(*FAMILIES)


@pytest.fixture(scope="module")
def prompts(family):
    chooser = random.Random(family.name)
    return [[chooser.randrange(3, 250) for _ in range(length)] for length in LENGTHS]


def listening(publisher):
    source = SourceConfig(endpoint=publisher.endpoint, replay_endpoint=publisher.replay_endpoint)
    return Subscriber(SubscriberConfig(sources=(source,)))


class Followed:
    """An engine over a folder, and a view that follows it from its first word."""

    def __init__(self, family, folder, blocks_per_chunk, publisher=None):
        config = family.config(8 << 20, attention_block_size=8, kv_events=KV_EVENTS)
        tiers = {
            "memory": "4MiB",
            "blocks_per_chunk": blocks_per_chunk,
            "tiers": [{"type": "disk", "path": str(folder), "size": "64MiB"}],
        }
        plan = plan_for(family.model, config)
        manager, runner = KVCacheManager(plan, enable_events=True), ModelRunner(family.model, plan)
        self.batches = []
        self.view = GroupView.of_plan(published_plan(plan))
        if publisher is None:
            publisher = InProcessPublisher()
            publisher.subscribe(self._note)
        self.engine = Engine(
            runner,
            manager,
            SchedulerLimits(max_step_tokens=config.max_step_tokens, max_num_seqs=8, max_waiting=64),
            vocab_size=family.model.vocab_size,
            offload=offload_maker(config, offload_always(tiers))(manager, runner),
            event_feed=EventFeed(manager, publisher),
        )

    def _note(self, batch):
        self.batches.append(batch)
        self.view.apply(batch.events)

    def rest(self):
        """An idle engine tells what there is to tell."""
        for _ in range(1000):
            self.engine.rest()
            if not self.engine._offload.has_pending_work() and not self.engine._event_feed.is_telling:
                return
        raise AssertionError("it never ends")

    def read(self, subscriber, last):
        """A view of what a subscriber reads up to this message."""
        view, sequence = GroupView.of_plan(published_plan(self.engine.manager.config)), None
        while sequence != last:
            item = subscriber.poll(PATIENCE_S)
            if isinstance(item, Resync):
                view.resync()
                continue
            view.apply(item.batch.events)
            if item.is_whole:
                view.told_all()
            sequence = item.sequence
        return view

    def predicted(self, prompt, media=None):
        config = self.engine.manager.config
        hashes = external_hashes(BlockHasher(hash_block_size=config.hash_block_size).hash_tokens(prompt, PLAIN))
        return self.view.longest_resume(hashes, len(prompt), media=media).num_tokens

    def resumed(self, prompt):
        (answer,) = generate(self.engine, [prompt], NEW_TOKENS)
        return sum(answer.cached.values())


@pytest.mark.parametrize("blocks_per_chunk", [1, 4])
def test_a_view_after_a_restart_says_what_the_engine_resumes(family, prompts, tmp_path, blocks_per_chunk):
    first = Followed(family, tmp_path, blocks_per_chunk)
    generate(first.engine, prompts, NEW_TOKENS)
    settle(first.engine)
    first.engine.close()
    second = Followed(family, tmp_path, blocks_per_chunk)
    second.rest()
    assert second.view.is_complete or blocks_per_chunk > 1
    total = 0
    for prompt in prompts:
        predicted = second.predicted(prompt)
        resumed = second.resumed(prompt)
        assert predicted == resumed or (predicted < resumed and not second.view.is_complete)
        total += predicted
    assert total > sum(LENGTHS) // 2
    second.engine.close()


def test_a_reset_that_spares_the_disk_tells_it_anew(family, prompts, tmp_path):
    followed = Followed(family, tmp_path, 1)
    generate(followed.engine, prompts, NEW_TOKENS)
    settle(followed.engine)
    followed.engine.reset_prefix_cache(tiers=False)
    followed.rest()
    for prompt in prompts:
        assert followed.predicted(prompt, media=["GPU", "CPU"]) == 0
        assert followed.predicted(prompt) == followed.resumed(prompt) > 0
    followed.engine.reset_prefix_cache()
    followed.rest()
    for prompt in prompts:
        assert followed.predicted(prompt) == followed.resumed(prompt) == 0
    followed.engine.close()


@pytest.mark.parametrize("blocks_per_chunk", [1, 4])
def test_who_comes_late_learns_all_that_is_there(family, prompts, tmp_path, blocks_per_chunk):
    config = PublisherConfig(endpoint="tcp://127.0.0.1:0", replay_endpoint="tcp://127.0.0.1:0", replay_batches=40)
    with ZmqPublisher(config) as publisher, listening(publisher) as early:
        followed = Followed(family, tmp_path, blocks_per_chunk, publisher)
        first = 3
        while publisher.published.batches < 100:
            first += 1
            generate(followed.engine, [[first, *prompt] for prompt in prompts], NEW_TOKENS)
            generate(followed.engine, prompts, NEW_TOKENS)
            settle(followed.engine)
            followed.rest()
        last = publisher.published.batches - 1
        followed.view = followed.read(early, last)
        from_start = [followed.predicted(prompt) for prompt in prompts]
        assert followed.view.is_complete
        with listening(publisher) as late:
            followed.view = followed.read(late, last)
        assert followed.view.is_complete
        assert from_start == [followed.predicted(prompt) for prompt in prompts]
        for prompt in prompts:
            assert followed.predicted(prompt, media=["CPU"]) == followed.predicted(prompt, media=["STORAGE"])
            assert followed.predicted(prompt) == followed.resumed(prompt) > 0
        followed.engine.close()
