"""A view that is fed from a manager's events answers what the manager itself would."""

import random

import msgspec
import numpy as np
import pytest

from octavo.blocks import KVCacheManager
from octavo.errors import BlockSizeError, InputError
from octavo.events.group_view import GroupView
from octavo.events.messages import AllBlocksCleared, BlockRemoved, BlockStored
from octavo.events.published_plan import PublishedGroup, PublishedPlan
from octavo.events.sources import EventSource, external_hashes
from octavo.hashing import RequestIdentity
from octavo.planning import plan_kv_cache
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    RequestLimits,
    SlidingWindowSpec,
)

A = {"num_kv_heads": 1, "head_size": 8}
FULL = FullAttentionSpec(block_size=16, **A)
WIDE_FULL = FullAttentionSpec(block_size=48, **A)
WINDOW = SlidingWindowSpec(block_size=16, sliding_window=64, **A)
CHUNK = ChunkedLocalAttentionSpec(block_size=16, attention_chunk_size=64, **A)
STATE = MambaSpec(block_size=16, shapes=((64,),), dtypes=(CacheDType.FLOAT32,))
CROSS = CrossAttentionSpec(block_size=16, **A)

SHAPES = {
    "full": [FULL],
    "window + full": [FULL, WINDOW],
    "chunks + full": [FULL, CHUNK],
    "state + full": [FULL, STATE],
    "state + window + full": [FULL, WINDOW, STATE],
    "larger blocks": [WIDE_FULL, WINDOW],
    "cross + full": [FULL, CROSS],
}


class Engine:
    """A manager in a small pool, its events, and the view that somebody else has of it."""

    def __init__(self, specs, *, memory=1 << 15, drafts=(), form=external_hashes):
        layers = {f"layers.{i}": spec for i, spec in enumerate(specs)}
        config = plan_kv_cache(
            layers,
            memory_bytes=memory,
            limits=RequestLimits(max_model_len=384, max_step_tokens=384, max_encoder_tokens=48),
            hash_block_size=16,
            draft_layers=[f"layers.{i}" for i in drafts],
        )
        self.manager = KVCacheManager(config, enable_events=True)
        self.form = form
        group_specs = [group.spec for group in config.groups]
        self.source = EventSource(group_specs, medium="GPU", hash_block_size=16)
        drafts = [index for index, group in enumerate(config.groups) if group.is_draft]
        self.plan = PublishedPlan.of_specs(group_specs, hash_block_size=16, draft_groups=drafts)
        self.view = GroupView.of_plan(self.plan)
        self.names = 0

    def begin(self, tokens, identity=None):
        self.names += 1
        encoder = 40 if identity is not None and identity.encoder_digest else 0
        return self.manager.begin_request(
            f"r{self.names}",
            np.array(tokens, dtype=np.int32),
            identity or RequestIdentity(),
            num_encoder_tokens=encoder,
        )

    def serve(self, tokens, identity=None, *, chunk=384):
        request = self.begin(tokens, identity)
        plan = self.manager.find_resume(request)
        done = plan.num_tokens
        while done < len(tokens):
            end = self.manager.cut_prefill(request, min(len(tokens), done + chunk), plan)
            assert self.manager.allocate(request, end, resume=plan) is not None
            plan, done = None, end
            self.manager.commit(request, end)
        self.manager.free(request)

    def publish(self):
        self.view.apply(self.source.messages(self.manager.take_changes()))

    def ask_both(self, tokens, identity=None):
        request = self.begin(tokens, identity)
        truth = self.manager.find_resume(request).num_tokens
        encoder = [
            self.form(request.group_hashes[i])
            for i, group in enumerate(self.manager.config.groups)
            if not group.spec.indexes_decoder_tokens
        ]
        seen = self.view.longest_resume(
            self.form(request.hashed),
            len(tokens),
            encoder_hashes=encoder[0] if encoder else (),
            num_encoder_tokens=request.num_encoder_tokens,
        )
        self.manager.free(request)
        return truth, seen.num_tokens


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", [external_hashes, list], ids=["integers", "digests"])
def test_a_view_knows_what_the_engine_knows(shape, form, monkeypatch):
    monkeypatch.setattr("octavo.events.sources.external_hashes", form)
    rng = random.Random(shape)
    engine = Engine(SHAPES[shape], form=form)
    stems = [[rng.randrange(1000) for _ in range(320)] for _ in range(3)]
    resumed = 0
    for _ in range(60):
        stem = rng.choice(stems)
        prompt = stem[: rng.randrange(20, 320)] + [rng.randrange(1000) for _ in range(rng.randrange(40))]
        identity = rng.choice([None, RequestIdentity(cache_salt="a")])
        if "cross" in shape:
            identity = RequestIdentity(encoder_digest=rng.choice([b"one", b"two"]))
        engine.serve(prompt, identity, chunk=rng.choice([48, 384]))
        engine.publish()
        truth, seen = engine.ask_both(prompt[: rng.randrange(1, len(prompt))] + stem[:5], identity)
        assert seen == truth
        resumed += truth
    assert resumed > 0
    assert engine.view.is_complete


def test_a_draft_group_vouches_only_with_the_granule_after():
    engine = Engine([FULL, WINDOW], drafts=[1])
    engine.serve(range(200))
    engine.publish()
    assert engine.ask_both(range(200)) == (176, 176)


def test_a_window_that_went_shortens_the_answer_to_what_is_true_and_no_more():
    engine = Engine([FULL, WINDOW], memory=1 << 17)
    engine.serve(range(200))
    engine.serve(range(100))
    engine.publish()
    request = engine.begin(range(200))
    hashes = external_hashes(request.hashed)
    assert engine.view.longest_resume(hashes, 200).num_tokens == 192
    engine.view.apply([BlockRemoved(block_hashes=[hashes[10]], medium="GPU", group_idx=1)])
    resume = engine.view.longest_resume(hashes, 200)
    assert (resume.num_tokens, resume.limited_by) == (160, 1)
    engine.view.apply([BlockRemoved(block_hashes=[hashes[1]], medium="GPU", group_idx=0)])
    assert engine.view.longest_resume(hashes, 200).num_tokens == 16


def test_a_block_on_two_media_is_there_until_both_have_lost_it():
    view = GroupView([FULL], hash_block_size=16)
    for medium in ("GPU", "CPU"):
        view.apply([stored([7], medium=medium)])
    view.apply([BlockRemoved(block_hashes=[7], medium="GPU", group_idx=0)])
    assert view.longest_resume([7], 17).num_tokens == 16
    assert view.longest_resume([7], 17, media=["GPU"]).num_tokens == 0
    assert (view.hashes(0, "GPU"), view.hashes(0, "CPU"), view.hashes(0, "DISK")) == (set(), {7}, set())
    view.apply([BlockRemoved(block_hashes=[7], medium="CPU", group_idx=0)])
    assert view.longest_resume([7], 17).num_tokens == 0


def test_after_a_resync_it_knows_what_was_stored_since_and_says_so():
    view = GroupView([FULL], hash_block_size=16)
    view.apply([stored([1, 2])])
    view.resync()
    assert (view.longest_resume([1, 2], 40).num_tokens, view.is_complete) == (0, False)
    view.apply([stored([1])])
    assert (view.longest_resume([1, 2], 40).num_tokens, view.is_complete) == (16, False)
    view.apply([AllBlocksCleared()])
    assert (view.longest_resume([1, 2], 40).num_tokens, view.is_complete) == (0, False)


def test_a_clear_of_the_device_leaves_slower_media_unknown():
    view, of_octavo = (GroupView([FULL], hash_block_size=16, clears_all_media=total) for total in (False, True))
    for each in (view, of_octavo):
        each.apply([stored([1]), AllBlocksCleared()])
        assert each.is_complete
        each.apply([stored([1], medium="CPU"), AllBlocksCleared()])
        assert each.longest_resume([1], 17).num_tokens == 0
    assert (view.is_complete, of_octavo.is_complete) == (False, True)
    of_octavo.resync()
    of_octavo.apply([AllBlocksCleared()])
    assert of_octavo.is_complete


@pytest.mark.parametrize("is_by_chunk", [False, True])
def test_chunks_count_with_all_their_blocks_in_either_form(is_by_chunk):
    view = GroupView([FULL], hash_block_size=16)
    hashes = list(range(1, 13))

    def told(event, chunk, **more):
        of_chunk = hashes[4 * chunk : 4 * chunk + 4]
        names = of_chunk[-1:] if is_by_chunk else of_chunk
        view.apply([event(names, block_size=64 if is_by_chunk else 16, **more)])

    told(stored, 0, medium="CPU")
    told(stored, 1, medium="CPU")
    view.apply([stored([9])])
    assert view.longest_resume(hashes, 200).num_tokens == 144
    view.apply([removed(hashes[3:4] if is_by_chunk else hashes[:4], medium="CPU")])
    assert (view.longest_resume(hashes, 200).num_tokens, view.is_complete) == (0, True)


def test_blocks_that_two_chunks_share_stay_until_both_are_gone():
    view = GroupView([FULL], hash_block_size=16)
    one, other = [1, 2, 3, 4], [1, 2, 7, 8]
    view.apply([stored(one, medium="CPU", tokens=True), stored(other, medium="CPU", tokens=True)])
    view.apply([removed(other, medium="CPU")])
    assert view.longest_resume(one, 65).num_tokens == 64
    view.apply([removed(one, medium="CPU")])
    assert (view.longest_resume(one, 65).num_tokens, view.hashes(0, "CPU")) == (0, set())
    assert view.is_complete


@pytest.mark.parametrize("medium", ["GPU", "CPU"])
def test_a_removal_of_what_was_told_twice_without_counting_may_be_wrong(medium):
    view = GroupView([FULL], hash_block_size=16)
    view.apply([stored([1], medium=medium), stored([1], medium=medium), removed([1], medium=medium)])
    assert (view.longest_resume([1], 17).num_tokens, view.is_complete) == (0, False)


def test_tiers_of_one_medium_are_told_apart():
    view = GroupView([FULL], hash_block_size=16)
    view.apply([stored([1], medium="STORAGE", ownership=name) for name in ("disk", "objects")])
    view.apply([removed([1], medium="STORAGE", ownership="disk")])
    assert view.longest_resume([1], 17, media=["STORAGE"]).num_tokens == 16
    assert view.is_complete


@pytest.mark.parametrize(("block_size", "num_dropped"), [(0, 0), (24, 1)])
def test_blocks_of_unknown_sizes_are_said_to_be_unsure(block_size, num_dropped):
    view = GroupView([FULL], hash_block_size=16)
    view.apply([stored([1], block_size=block_size)])
    assert (view.is_complete, view.num_dropped_events) == (False, num_dropped)


@pytest.mark.parametrize(("size", "held", "tokens"), [(16, [1, 2], 32), (16, [1, 3], 0), (64, [4], 64), (32, [2], 32)])
def test_blocks_of_another_size_than_the_groups_count_where_they_cover_it(size, held, tokens):
    view = GroupView([FullAttentionSpec(block_size=32, **A)], hash_block_size=16)
    view.apply([stored(held, block_size=size)])
    assert (view.longest_resume([1, 2, 3, 4, 5], 80).num_tokens, view.is_complete) == (tokens, True)


@pytest.mark.parametrize("group_idx", [None, 1, -1])
def test_events_of_groups_that_the_plan_lacks_are_counted(group_idx):
    view = GroupView([FULL], hash_block_size=16)
    view.apply([stored([1], group_idx=group_idx)])
    assert (view.num_dropped_events, view.is_complete) == (1, False)
    assert view.longest_resume([1], 17).num_tokens == 0
    view.told_all()
    assert not view.is_complete, "what it told anew may be dropped too"


def test_whose_publisher_has_told_all_is_complete_again():
    view = GroupView([FULL], hash_block_size=16)
    view.resync()
    view.apply([stored([1])])
    assert not view.is_complete
    view.told_all()
    assert view.is_complete


def test_a_plan_survives_the_wire():
    plan = Engine([FULL, WINDOW, STATE], drafts=[1]).plan
    assert msgspec.json.decode(msgspec.json.encode(plan), type=PublishedPlan) == plan
    assert [type(group.spec()) for group in plan.groups] == [FullAttentionSpec, MambaSpec, SlidingWindowSpec]


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (PublishedGroup(kind="strange", block_size=16), "kind 'strange' is not known here: known are full_attention"),
        (PublishedGroup(kind="sliding_window", block_size=16), "needs sliding_window"),
        (PublishedGroup(kind="chunked_local_attention", block_size=16), "needs attention_chunk_size"),
    ],
)
def test_a_plan_without_a_rule_is_refused(group, message):
    with pytest.raises(InputError, match=message):
        GroupView.of_plan(PublishedPlan(hash_block_size=16, groups=[group]))


def test_block_sizes_must_fit_the_hashes():
    with pytest.raises(BlockSizeError, match=r"block_size = 16 .* hash_block_size = 12"):
        GroupView([FULL], hash_block_size=12)


def stored(hashes, *, medium="GPU", group_idx=0, block_size=16, ownership=None, tokens=False):
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=None,
        token_ids=[0] * len(hashes) * block_size if tokens else [],
        block_size=block_size,
        lora_id=None,
        medium=medium,
        lora_name=None,
        group_idx=group_idx,
        ownership=ownership,
    )


def removed(hashes, *, medium="GPU", ownership=None, **_):
    return BlockRemoved(block_hashes=hashes, medium=medium, group_idx=0, ownership=ownership)


class OwnName(SlidingWindowSpec):
    kind = "own_name"


class OwnRule(SlidingWindowSpec):
    kind = "own_rule"

    def needed_blocks(self, point):
        return (range(point.num_tokens // self.block_size),)


class OwnRuleUnderAKnownName(FullAttentionSpec):
    def needed_blocks(self, point):
        return ()


def test_a_third_partys_kind_travels_as_its_nearest_known_ancestor():
    plan = PublishedPlan.of_specs([OwnName(block_size=16, sliding_window=64, **A)], hash_block_size=16)
    assert (plan.groups[0].kind, plan.groups[0].sliding_window) == ("sliding_window", 64)


@pytest.mark.parametrize(
    "spec", [OwnRule(block_size=16, sliding_window=64, **A), OwnRuleUnderAKnownName(block_size=16, **A)]
)
def test_a_rule_that_a_plan_cannot_tell_is_refused_by_name(spec):
    with pytest.raises(InputError, match=f"{spec.kind}.*{type(spec).__name__}"):
        PublishedPlan.of_specs([spec], hash_block_size=16)
