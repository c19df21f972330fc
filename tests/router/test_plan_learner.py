"""A plan that nobody told: learned from the events of an engine whose groups and hashes are known to the test only."""

import asyncio
from contextlib import AbstractContextManager

import pytest

from octavo.errors import InputError
from octavo.events import (
    BlockRemoved,
    BlockStored,
    Delivered,
    Heard,
    KVEventBatch,
    PublishedGroup,
    PublishedPlan,
    Resync,
    ResyncReason,
    Silence,
    encode_batch,
    external_hashes,
)
from octavo.hashing import PLAIN, BlockHasher, MultiModalItem, RequestIdentity
from octavo.http import EngineFacts
from octavo.router import EngineAddress, Indexes, LearningFeed, Member, PlanLearner
from octavo.router.listener import listen

TOKENS = list(range(100, 100 + 64))
FULL = PublishedGroup(kind="full_attention", block_size=16)
WINDOW = PublishedGroup(kind="sliding_window", block_size=32, sliding_window=40)
STATE = PublishedGroup(kind="mamba", block_size=32)


def hashes_of(group, tokens=TOKENS, *, hash_block_size=8, seed="0", identity=PLAIN, ahead=0):
    hasher = BlockHasher(hash_block_size=hash_block_size, algorithm="sha256_cbor", seed=seed, lookahead_tokens=ahead)
    return external_hashes(hasher.hash_tokens(tokens, identity))[
        group.block_size // hash_block_size - 1 :: group.block_size // hash_block_size
    ]


def stored(index, group, hashes, *, parent=None, tokens=TOKENS, extra_keys=None, lora_name=None):
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=parent,
        token_ids=tokens,
        block_size=group.block_size,
        lora_id=None,
        medium="GPU",
        lora_name=lora_name,
        extra_keys=extra_keys,
        group_idx=index,
        kv_cache_spec_kind=group.kind,
        kv_cache_spec_sliding_window=group.sliding_window,
    )


def learner():
    seeds = ("vllm-none-hash", "0")
    return PlanLearner(hash_algorithm="sha256_cbor", hash_seeds=seeds, adapters={"tuned": "/a", "s": "/b"})


def test_groups_block_sizes_and_seed_are_learned():
    learning = learner()
    assert not learning.take([stored(1, WINDOW, [hashes_of(WINDOW)[-1]])])
    assert learning.plan is None  # there must be a group 0
    assert learning.take([stored(0, FULL, hashes_of(FULL))])
    plan = learning.plan
    assert (plan.plan.groups, plan.hash_seed) == ([FULL, WINDOW], "0")
    assert FULL.block_size % plan.plan.hash_block_size == 0
    assert learning.take([stored(2, STATE, [hashes_of(STATE)[0]])])
    assert learning.plan.plan.groups == [FULL, WINDOW, STATE]
    assert not learning.take([stored(2, STATE, [hashes_of(STATE)[1]])])


def test_the_size_of_hash_blocks_is_tried_out():
    learning = learner()
    learning.take([stored(0, FULL, hashes_of(FULL))])
    assert learning.plan.plan.hash_block_size == 8


def test_hashes_of_another_seed_are_told_with_the_remedy():
    with pytest.raises(InputError, match=r"PYTHONHASHSEED=0 and --prefix-caching-hash-algo sha256_cbor"):
        learner().take([stored(0, FULL, hashes_of(FULL, seed="another"))])


IMAGE = MultiModalItem(identifier="cat", offset=3, length=20)
WITH_IMAGE = [*TOKENS[:3], *[7] * 20, *TOKENS[23:]]


@pytest.mark.parametrize(
    ("identity", "tokens", "extra_keys"),
    [
        (RequestIdentity(cache_salt="s"), TOKENS, [("s",), None, None, None]),
        (RequestIdentity(multimodal=(IMAGE,)), WITH_IMAGE, [(("cat", 3),), (("cat", -13),), None, None]),
        (
            RequestIdentity(cache_salt="s", multimodal=(IMAGE,)),
            WITH_IMAGE,
            [(("cat", 3), "s"), (("cat", -13),), None, None],
        ),
        (RequestIdentity(lora_name="tuned", lora_path="/a"), TOKENS, [("tuned",)] * 4),
        (RequestIdentity(lora_name="s", lora_path="/b", cache_salt="s"), TOKENS, [("s", "s"), *[("s",)] * 3]),
    ],
)
def test_what_a_hash_has_beside_tokens_is_told_with_it(identity, tokens, extra_keys):
    learning = learner()
    told = hashes_of(FULL, tokens, identity=identity)
    name = identity.lora_name
    assert learning.take([stored(0, FULL, told, tokens=tokens, extra_keys=extra_keys, lora_name=name)])
    assert (learning.plan.plan.hash_block_size, learning.plan.hash_seed) == (8, "0")


@pytest.mark.parametrize(
    "keys",
    [
        (b"digest of embeddings",),
        ("s", b"digest"),
        ("s", "t"),
        (("cat", 3, 4),),
        (("cat", 99),),
        (("cat", "3"),),
        (1.5,),
    ],
)
def test_keys_that_do_not_say_enough_teach_nothing(keys):
    learning = learner()
    learning.take([stored(0, FULL, [1, 2, 3, 4], extra_keys=[keys, None, None, None])])
    assert learning.plan is None


@pytest.fixture
def hashed(monkeypatch):
    """How many tokens are hashed each time that hashes are tried out."""
    lengths = []

    class Counted(BlockHasher):
        def hash_tokens(self, tokens, identity):
            lengths.append(len(tokens))
            return super().hash_tokens(tokens, identity)

    monkeypatch.setattr("octavo.router.plan_learner.BlockHasher", Counted)
    return lengths


def test_of_a_long_prompt_the_first_block_is_enough_to_learn_from(hashed):
    """All of it in all ways would hold up a router's requests for seconds."""
    learning, tokens = learner(), list(range(8000))
    learning.take([stored(0, FULL, hashes_of(FULL, tokens), tokens=tokens)])
    assert learning.plan.hash_seed == "0"
    assert max(hashed) < 2 * FULL.block_size


def test_what_cannot_be_learned_from_is_tried_ever_more_rarely(hashed):
    learning, image = learner(), [(("cat", 0),)] * 4
    for _ in range(5000):
        learning.take([stored(0, FULL, [1, 2, 3, 4], extra_keys=image)])
    per_try = 5 * 5 * 2  # sizes, lookaheads and seeds
    assert per_try * 10 <= len(hashed) <= per_try * 20
    assert learning.take([stored(0, FULL, hashes_of(FULL))]), "what says enough is tried at once"


HIGHLY_DIVISIBLE = PublishedGroup(kind="full_attention", block_size=5040)
LONG = list(range(2 * 5040))


def test_a_block_size_with_many_divisors_is_tried_a_part_at_a_time(monkeypatch):
    """All ways at once would hold up a router's requests for seconds."""
    num_hashes = []

    class Counted(BlockHasher):
        def hash_tokens(self, tokens, identity):
            num_hashes[-1] += len(tokens) // self.hash_block_size
            return super().hash_tokens(tokens, identity)

    monkeypatch.setattr("octavo.router.plan_learner.BlockHasher", Counted)
    told = hashes_of(HIGHLY_DIVISIBLE, [*LONG, 1], hash_block_size=3, ahead=1)
    learning = learner()
    num_hashes.append(0)
    assert not learning.take([stored(0, HIGHLY_DIVISIBLE, told, tokens=LONG)])
    while learning.is_trying:
        num_hashes.append(0)
        is_new = learning.go_on()
    assert is_new
    assert (learning.plan.plan.hash_block_size, learning.plan.lookahead_tokens) == (3, 1)
    assert len(num_hashes) > 2
    assert max(num_hashes) <= 8192 + 5044


def test_hashes_of_another_seed_are_refused_when_all_ways_were_tried():
    learning = learner()
    learning.take([stored(0, HIGHLY_DIVISIBLE, [1, 2], tokens=LONG)])

    def try_all():
        while learning.is_trying:
            learning.go_on()

    with pytest.raises(InputError, match="its hashes are not those of sha256_cbor"):
        try_all()
    assert not learning.is_trying


def test_what_says_enough_is_tried_in_place_of_what_says_too_little():
    learning, image = learner(), [(("cat", 0),)] * 2
    learning.take([stored(0, HIGHLY_DIVISIBLE, [1, 2], tokens=LONG, extra_keys=image)])
    assert learning.is_trying
    assert learning.take(
        [stored(0, HIGHLY_DIVISIBLE, hashes_of(HIGHLY_DIVISIBLE, LONG, hash_block_size=16), tokens=LONG)]
    )
    assert not learning.is_trying


@pytest.mark.parametrize("name", ["another", "tuned"])
def test_an_adapter_whose_path_is_not_known_or_another_one_teaches_nothing(name):
    learning = learner()
    hashes = hashes_of(FULL, identity=RequestIdentity(lora_name=name, lora_path="/else"))
    learning.take([stored(0, FULL, hashes, extra_keys=[(name,)] * 4, lora_name=name)])
    assert learning.plan is None
    learning.take([stored(0, FULL, hashes_of(FULL))])
    assert learning.plan.hash_seed == "0"


@pytest.mark.parametrize("identity", [RequestIdentity(cache_salt="s"), RequestIdentity(multimodal=(IMAGE,))])
def test_a_group_that_keeps_its_last_blocks_does_not_tell_how_the_prompt_began(identity):
    """It is no sign of another seed either."""
    learning = learner()
    learning.take([stored(1, WINDOW, hashes_of(WINDOW, WITH_IMAGE, identity=identity)[1:], extra_keys=[None])])
    learning.take([stored(0, FULL, hashes_of(FULL))])
    assert learning.plan.hash_seed == "0"


def test_a_group_whose_rule_the_events_do_not_tell_needs_nothing():
    learning = learner()
    chunked = PublishedGroup(kind="chunked_local_attention", block_size=16)
    learning.take([stored(0, FULL, hashes_of(FULL)), stored(1, chunked, hashes_of(chunked))])
    assert learning.plan.plan.groups[1] == PublishedGroup(kind="sliding_window", block_size=16, sliding_window=1)


def delivered(*events, is_whole=False, plan=None):
    batch = KVEventBatch(ts=0.0, events=list(events), plan=plan)
    payload = encode_batch(batch)
    return Delivered(
        sequence=0, topic="", batch=batch, endpoint="", payload=payload, is_replayed=False, is_whole=is_whole
    )


class Follower:
    """An engine, and the indexes that its blocks lie in."""

    def __init__(self):
        self.member = Member(address=EngineAddress.parse("http://a:1"), learns_plan=True)
        self.indexes = Indexes()
        self.feed = LearningFeed(self.member, self.indexes, algorithm="sha256_cbor", learner=learner())

    @property
    def num_blocks(self):
        return 0 if self.member.index is None else self.member.index.num_blocks_of("a:1")

    def resumes(self):
        ((index, hasher),) = self.indexes.hashers.items()
        return index.resumes(external_hashes(hasher.hash_tokens([*TOKENS, 1], PLAIN)), len(TOKENS) + 1)


def test_what_was_told_before_a_group_was_known_counts_when_it_is():
    engine = Follower()
    engine.feed.take(delivered(stored(1, WINDOW, hashes_of(WINDOW))))
    assert engine.member.index is None
    engine.feed.take(delivered(stored(0, FULL, hashes_of(FULL))))
    assert engine.resumes() == {"a:1": 64}
    engine.feed.take(delivered(stored(2, STATE, hashes_of(STATE)[:1])))
    assert engine.resumes() == {"a:1": 32}
    assert engine.member.index.is_complete("a:1")
    assert engine.member.index.num_blocks_of("a:1") == 4 + 2 + 1


def test_what_was_told_while_hashes_are_tried_counts_when_they_are_known():
    engine, told = Follower(), hashes_of(HIGHLY_DIVISIBLE, [*LONG, 1], hash_block_size=3, ahead=1)
    engine.feed.take(delivered(stored(0, HIGHLY_DIVISIBLE, told, tokens=LONG)))
    engine.feed.take(delivered(BlockRemoved(block_hashes=told[1:], medium="GPU", group_idx=0)))
    assert engine.member.index is None
    while engine.feed.go_on():
        pass
    assert engine.num_blocks == 1
    refused = Follower()
    refused.feed.take(delivered(stored(0, HIGHLY_DIVISIBLE, [1, 2], tokens=LONG)))
    while refused.feed.go_on():
        pass
    assert "its events cannot be used: its hashes are not those" in refused.member.blind


def test_what_waits_for_a_group_has_a_bound_in_bytes(monkeypatch):
    engine = Follower()
    prompts = [[number] * 64 for number in range(1, 5)]
    told = [delivered(stored(1, WINDOW, hashes_of(WINDOW, prompt), tokens=prompt)) for prompt in prompts]
    monkeypatch.setattr("octavo.router.feed._MOST_WAITING_BYTES", 2 * len(told[0].payload))
    for item in told:
        engine.feed.take(item)
    engine.feed.take(delivered(stored(0, FULL, hashes_of(FULL)[:1])))
    assert engine.num_blocks == 2 * len(hashes_of(WINDOW)) + 1, "the oldest made room for the newest"
    assert not engine.member.index.is_complete("a:1")


def test_copies_that_were_counted_count_when_the_plan_has_grown():
    """vLLM tells each copy of its slower media, with tokens."""
    engine, hashes = Follower(), hashes_of(FULL)
    for _ in range(2):
        told = stored(0, FULL, hashes)
        told.medium = "CPU"
        engine.feed.take(delivered(told))
    former = engine.member.index
    engine.feed.take(delivered(stored(1, WINDOW, hashes_of(WINDOW))))
    assert engine.member.index is not former
    removed = BlockRemoved(block_hashes=hashes, medium="CPU", group_idx=0)
    engine.feed.take(delivered(removed))
    assert engine.resumes() == {"a:1": 64}
    engine.feed.take(delivered(removed))
    assert engine.resumes() == {}
    assert engine.num_blocks == 2


@pytest.mark.parametrize("ahead", [1, 2])
def test_hashes_that_cover_the_next_tokens_are_found_out_once_they_can_be(ahead):
    engine, told = Follower(), hashes_of(FULL, [*TOKENS, 1, 2], ahead=ahead)
    engine.feed.take(delivered(stored(0, FULL, told[:1], tokens=TOKENS[:16])))
    assert engine.member.index is None, "what follows this block is not known"
    engine.feed.take(delivered(stored(0, FULL, told)))
    (hasher,) = engine.indexes.hashers.values()
    hashes = external_hashes(hasher.hash_tokens([*TOKENS, 1, 2], PLAIN))
    assert engine.member.index.resumes(hashes, len(TOKENS) + 2) == {"a:1": 64}
    others = external_hashes(hasher.hash_tokens([*TOKENS, 9, 9], PLAIN))
    assert engine.member.index.resumes(others, len(TOKENS) + 2) == {"a:1": 48}


def test_blocks_of_a_silent_engine_count_when_it_is_heard_again():
    engine = Follower()
    problem = engine.member.blind
    for item in (Silence(silent_s=30.0), Heard()):
        engine.feed.take(item)
    assert engine.member.blind == problem, "its plan is as unknown as before"
    engine.feed.take(delivered(stored(0, FULL, hashes_of(FULL))))
    engine.feed.take(Silence(silent_s=30.0))
    assert (engine.resumes(), engine.member.blind) == ({}, "it has been silent for 30 s")
    engine.feed.take(Heard())
    assert (engine.resumes(), engine.member.blind) == ({"a:1": 64}, "")


@pytest.mark.parametrize(("is_from_start", "is_complete"), [(True, True), (False, False)])
def test_a_view_that_begins_late_or_anew_says_so(is_from_start, is_complete):
    engine = Follower()
    reason = ResyncReason.RESTARTED if is_from_start else ResyncReason.LATE_JOIN
    engine.feed.take(Resync(reason=reason, expected=0, got=None, is_from_start=is_from_start))
    engine.feed.take(delivered(stored(0, FULL, hashes_of(FULL))))
    assert engine.member.index.is_complete("a:1") == is_complete
    engine.feed.take(delivered(is_whole=True))
    assert engine.member.index.is_complete("a:1"), "all was told anew"
    engine.feed.take(delivered(BlockRemoved(block_hashes=[1], medium="GPU"), is_whole=True))
    assert not engine.member.index.is_complete("a:1"), "some of it could not be used"
    engine.feed.take(Resync(reason=reason, expected=0, got=None, is_from_start=is_from_start))
    assert engine.num_blocks == 0


ANEW = Resync(reason=ResyncReason.RESTARTED, expected=1, got=0, is_from_start=True)


def test_a_plan_tells_which_stores_are_off_and_stays_the_same_plan():
    engine = Follower()

    def off():
        return list(engine.member.index._engines["a:1"].stores_off)

    plan = PublishedPlan(hash_block_size=8, groups=[FULL], heartbeat_s=10.0, stores_off=["redis"])
    for item in (delivered(plan=plan), delivered(stored(0, FULL, hashes_of(FULL)))):
        engine.feed.take(item)
    index = engine.member.index
    assert off() == ["redis"]
    engine.feed.take(delivered(plan=PublishedPlan(hash_block_size=8, groups=[FULL], heartbeat_s=10.0)))
    assert (engine.member.index, off()) == (index, [])
    engine.feed.take(delivered(plan=plan))
    engine.feed.take(Resync(reason=ResyncReason.GAP, expected=1, got=3))
    assert (engine.member.index, off()) == (index, ["redis"])
    for item in (ANEW, delivered(stored(0, FULL, hashes_of(FULL)))):
        engine.feed.take(item)
    assert off() == []


@pytest.mark.parametrize(
    ("group", "told"), [(FULL, hashes_of(FULL, seed="vllm-none-hash")), (STATE, hashes_of(STATE)[-1:])]
)
def test_an_engine_that_begins_anew_may_have_another_plan_and_another_seed(group, told):
    engine = Follower()
    for item in (delivered(stored(0, FULL, hashes_of(FULL))), ANEW, delivered(stored(0, group, told))):
        engine.feed.take(item)
    assert engine.resumes() == {"a:1": 64}
    assert engine.member.index.is_complete("a:1")


def test_hashes_that_were_refused_are_tried_again_when_the_engine_begins_anew():
    engine = Follower()
    engine.feed.take(delivered(stored(0, FULL, hashes_of(FULL, seed="another"))))
    assert engine.member.blind.startswith("its events cannot be used: its hashes are not those of sha256_cbor")
    engine.feed.take(delivered(stored(0, FULL, hashes_of(FULL))))
    assert engine.num_blocks == 0
    for item in (ANEW, delivered(stored(0, FULL, hashes_of(FULL)))):
        engine.feed.take(item)
    assert (engine.resumes(), engine.member.blind) == ({"a:1": 64}, "")


class FailingSubscriber(AbstractContextManager):
    """One batch, and then what nobody expects."""

    def __init__(self, _):
        self.items = [delivered(stored(0, FULL, hashes_of(FULL)))]

    def __exit__(self, *_):
        pass

    async def __aiter__(self):
        for item in self.items:
            yield item
        raise OSError("too many open files")


def test_blocks_that_nobody_follows_any_more_do_not_count(monkeypatch, caplog):
    engine, known = Follower(), []

    def open_subscriber(config, **_):
        known.append(engine.indexes.num_blocks)
        engine.member.has_left = len(known) == 2
        return FailingSubscriber(config)

    monkeypatch.setattr("octavo.router.listener.Subscriber", open_subscriber)
    monkeypatch.setattr("octavo.router.listener._FIRST_PAUSE_S", 0.0)
    facts = EngineFacts(
        model="m", max_model_len=64, events="ipc:///events", hash_algorithm="sha256_cbor", hash_seed="0"
    )
    asyncio.run(listen(engine.member, facts, engine.indexes))
    assert known == [0, 0]
    assert engine.member.blind == "its events cannot be used: too many open files"
    assert "engine a:1: reading its events has failed" in caplog.messages
