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

    def __init__(self, specs, *, memory=1 << 15, drafts=(), as_bytes=False):
        layers = {f"layers.{i}": spec for i, spec in enumerate(specs)}
        config = plan_kv_cache(
            layers,
            memory_bytes=memory,
            limits=RequestLimits(max_model_len=384, max_step_tokens=384, max_encoder_tokens=48),
            hash_block_size=16,
            draft_layers=[f"layers.{i}" for i in drafts],
        )
        self.manager = KVCacheManager(config, enable_events=True)
        self.as_bytes = as_bytes
        group_specs = [group.spec for group in config.groups]
        self.source = EventSource(group_specs, medium="GPU", hash_block_size=16, hashes_as_bytes=as_bytes)
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
            external_hashes(request.group_hashes[i], as_bytes=self.as_bytes)
            for i, group in enumerate(self.manager.config.groups)
            if not group.spec.indexes_decoder_tokens
        ]
        seen = self.view.longest_resume(
            external_hashes(request.hashed, as_bytes=self.as_bytes),
            len(tokens),
            encoder_hashes=encoder[0] if encoder else (),
            num_encoder_tokens=request.num_encoder_tokens,
        )
        self.manager.free(request)
        return truth, seen.num_tokens


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_view_knows_what_the_engine_knows(shape, as_bytes):
    rng = random.Random(shape)
    engine = Engine(SHAPES[shape], as_bytes=as_bytes)
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
    assert (view.longest_resume([1, 2], 40).num_tokens, view.is_complete) == (0, True)


@pytest.mark.parametrize("group_idx", [None, 1, -1])
def test_events_of_groups_that_the_plan_lacks_are_counted(group_idx):
    view = GroupView([FULL], hash_block_size=16)
    view.apply([stored([1], group_idx=group_idx)])
    assert view.events_of_unknown_groups == 1
    assert view.longest_resume([1], 17).num_tokens == 0


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


def stored(hashes, *, medium="GPU", group_idx=0):
    return BlockStored(
        block_hashes=hashes,
        parent_block_hash=None,
        token_ids=[],
        block_size=16,
        lora_id=None,
        medium=medium,
        lora_name=None,
        group_idx=group_idx,
    )
