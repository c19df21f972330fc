"""The writer: what it promises of prompts that others share, and what it keeps of those that do not fit."""

from itertools import pairwise
from pathlib import Path

import pytest

from octavo.blocks import KVCacheManager
from octavo.chunks import NO_TENANT, GroupOffloadConfig
from octavo.offload import PromiseRule, StorePolicy
from octavo.planning import plan_kv_cache, read_model
from octavo.policies import POLICIES
from octavo.specs import MLAAttentionSpec, PromisePlan, RequestLimits, ResumePoint, SlidingWindowMLASpec
from octavo.testing import chunked, full, sinks, small_model, state, window
from rigs.naive_tier import NaiveTier
from rigs.offload_machine import PATIENCE_S, OffloadingEngine

LAYERS = {
    "full": [full()],
    "windows": [window(10), full()],
    "several windows": [window(5), window(20, heads=3), full()],
    "states": [state(), full()],
    "light states": [state(elements=1), full()],
    "windows and states": [window(9), state(), full()],
    "heavy windows and states": [window(8, heads=5), state(elements=16 * 8), full()],
    "latent": [MLAAttentionSpec(block_size=4, head_size=8)],
    "latent windows": [
        SlidingWindowMLASpec(block_size=4, head_size=8, sliding_window=9),
        MLAAttentionSpec(block_size=4, head_size=8),
    ],
    "sinks": [sinks(6), window(9)],
    "chunked-local": [chunked(16), full()],
    "draft": [full(), state()],
    "heavy windows": [window(8, heads=5), full()],
}
LONG_WINDOWS = {"long heavy windows": [window(80, heads=5), full()]}
FAR_APART = {
    "windows, points far apart": [window(8, heads=30), full()],
    "states, points far apart": [state(elements=16 * 60), full()],
    "windows and states, points far apart": [window(8, heads=15), state(elements=16 * 30), full()],
    "latent windows, points far apart": [
        SlidingWindowMLASpec(block_size=4, head_size=240, sliding_window=8),
        MLAAttentionSpec(block_size=4, head_size=8),
    ],
}
"""What a point needs weighs 60 times as much as a block of the prefix: points are 16 blocks apart."""
HYBRIDS = [name for name in LAYERS if name not in ("full", "latent")]
BLOCK = 4
LIMITS = RequestLimits(max_model_len=480, max_step_tokens=96)


class Writer(OffloadingEngine):
    """An engine, and memory for so many blocks of all groups together."""

    def __init__(
        self,
        layers,
        *,
        blocks,
        tiers=(),
        quota=None,
        policy="lru",
        store_policy=StorePolicy.AT_BOUNDARIES,
        limits=LIMITS,
        interval=None,
    ):
        model = small_model(
            *(LAYERS | LONG_WINDOWS | FAR_APART)[layers], limits=limits, checkpoint_interval_tokens=interval
        )
        super().__init__(KVCacheManager(model.plan(1.0)))
        groups = [
            GroupOffloadConfig(spec=group.spec.rule, blocks_per_chunk=1, page_size_bytes=group.page_bytes)
            for group in self.config.groups
        ]
        self.groups = groups
        quotas = {} if quota is None else {NO_TENANT: quota}
        self.attach(tiers, groups, chunks_in_memory=blocks, policy=policy, store_policy=store_policy, quotas=quotas)

    def serve_anew(self, prompt):
        """Blocks that a request resumes while the device is empty."""
        request = self.begin(prompt)
        give_up_at = self.now + PATIENCE_S + 1
        while not self.is_ready(request):
            assert self.now < give_up_at
            self.poll()
        resumed = self.prefill(request)
        self.free(request)
        while self.offload.has_pending_work():
            self.poll()
        self.manager.pool.forget_everything()
        self.check_nothing_leaks()
        return resumed // BLOCK

    def most_that_fits(self, most):
        """The largest boundary, in blocks, whose needs memory could hold."""

        def num_slots(block):
            point = ResumePoint(block * BLOCK)
            return sum(
                len(run) * -(-group.page_size_bytes // self.arena.slot_bytes)
                for group in self.groups
                for run in group.spec.needed_blocks(point)
            )

        return max(block for block in range(1, most + 1) if num_slots(block) <= self.arena.num_slots)

    def lose_memory(self):
        """As after a restart: only tiers have anything."""
        resident = self.offloading_manager._resident
        resident.drop([key for shard in resident.index.shards for key in shard])

    def poll(self):
        self.now += 0.01
        self.offload.poll(self.now)


def prompts_that_share(shared, length, count=4):
    """In blocks; each goes on in its own way, and one token more is left to compute."""
    head = list(range(shared * BLOCK))
    return [[*head, *(10_000 * (1 + n) + i for i in range((length - shared) * BLOCK + 1))] for n in range(count)]


@pytest.mark.parametrize("policy", ["lru", "resume_points"])
@pytest.mark.parametrize("layers", LAYERS)
def test_what_prompts_share_is_resumed_from_the_second_on(layers, policy):
    writer = Writer(layers, blocks=400, policy=policy)
    assert [writer.serve_anew(prompt) for prompt in prompts_that_share(20, 30)] == [0, 20, 20, 20]


@pytest.mark.parametrize("layers", LAYERS)
def test_what_prompts_share_is_resumed_from_a_tier_when_memory_is_empty_too(layers):
    prompts = prompts_that_share(20, 30)
    writer = Writer(layers, blocks=400, tiers=[NaiveTier(1 << 20)])
    writer.serve_anew(prompts[0])
    writer.lose_memory()
    assert [writer.serve_anew(prompt) for prompt in prompts] == [30, 20, 20, 20]


@pytest.mark.parametrize("step_tokens", [96, 250, 2048])
@pytest.mark.parametrize("blocks", [7, 30, 100, 470])
def test_points_cut_a_prompt_into_a_few_pieces(blocks, step_tokens):
    limits = RequestLimits(max_model_len=1920, max_step_tokens=step_tokens)
    writer = Writer("light states", blocks=2000, limits=limits)
    request = writer.begin(range(blocks * BLOCK + 1))
    assert writer.is_ready(request)
    most = 8 * -(-blocks * BLOCK // step_tokens) + 1
    assert 3 <= len(request.blocks.promises.between(0, blocks * BLOCK)) <= most


def test_no_piece_is_shorter_than_a_step_is_worth():
    limits = RequestLimits(max_model_len=1920, max_step_tokens=2048, least_step_tokens=500)
    request = Writer("light states", blocks=2000, limits=limits).begin(range(1900))
    points = request.blocks.promises.between(0, 1900)
    pieces = [end - start for start, end in pairwise([0, *points])]
    assert len(pieces) > 3
    assert min(pieces[:-2]) >= 500  # before the last block, and at its end


@pytest.mark.parametrize("layers", FAR_APART)
def test_a_branch_between_two_points_is_promised_once_it_was_seen(layers):
    writer = Writer(layers, blocks=400)
    assert [writer.serve_anew(prompt) for prompt in prompts_that_share(21, 30)] == [0, 16, 21, 21]


@pytest.mark.parametrize(("asked", "spacing"), [(None, 512), (32, 32)])
def test_with_little_room_points_lie_as_windows_and_states_weigh_unless_they_were_asked_for(asked, spacing):
    """The plan's own distance is for the device, where windows cost no room of their own."""
    writer = Writer("heavy windows and states", blocks=60, interval=asked)
    assert writer.config.checkpoint_interval_tokens == (asked or 132)
    writer.serve_anew(range(50 * BLOCK + 1))
    request = writer.begin(range(1000, 1000 + 100 * BLOCK))
    assert writer.is_ready(request)
    assert request.blocks.promises.spacing_tokens == spacing


@pytest.mark.parametrize("policy", ["lru", "resume_points"])
@pytest.mark.parametrize("layers", ["heavy windows", "long heavy windows", "heavy windows and states"])
def test_a_second_question_about_a_document_resumes_most_of_it_with_little_room(layers, policy):
    """Before it, nobody has seen where questions begin, and points inside the document are too dear."""
    writer = Writer(layers, blocks=130, policy=policy)
    writer.serve_anew(range(50_000, 50_000 + 60 * BLOCK))
    first, second = prompts_that_share(60, 62, count=2)
    assert writer.serve_anew(first) == 0
    assert 56 <= writer.serve_anew(second) <= 60
    assert writer.serve_anew([*second[: 60 * BLOCK], *range(90_000, 90_009)]) == 60, "where both parted"


REAL = {
    ("gemma-3-27b", 4_100): 128,  # with 256 its windows would weigh more than a quarter of what is new
    ("gemma-3-27b", 16_000): 512,
    ("gemma-3-27b", 1_000): None,  # the window of the end is all that there is
    ("gpt-oss-20b", 4_100): 256,
    ("gpt-oss-20b", 60): None,
    ("qwen3-next-80b", 16_000): 512,
    ("qwen3-next-80b", 7_000): 432,
    ("qwen3-next-80b", 4_100): None,  # a state weighs as much as 3,145 tokens of attention
}
"""By model and tokens of a new prompt: how long before its end a point lies while memory is full."""


@pytest.mark.parametrize(("model", "num_tokens"), REAL)
def test_the_point_before_the_end_of_a_new_prompt(model, num_tokens):
    limits = RequestLimits(max_model_len=1 << 17)
    layers = read_model(Path(f"examples/models/{model}.json")).layers
    plan = plan_kv_cache(layers, memory_bytes=8 << 30, limits=limits, shorten_context=True)
    groups = [
        GroupOffloadConfig(spec=group.spec.rule, blocks_per_chunk=1, page_size_bytes=group.page_bytes)
        for group in plan.groups
    ]
    rule, boundary = PromiseRule(groups, plan.resume_granularity, limits), num_tokens // 16 * 16
    promises = PromisePlan(granularity=plan.resume_granularity, prompt_boundary=boundary)
    point = rule.planned(promises, 0, 0.0).before_end
    assert (point and boundary - point) == REAL[model, num_tokens]
    for more in (boundary * 7 // 8, boundary - 16):
        assert rule.planned(promises, more, 0.0).before_end is None, "most of the prompt is known"


@pytest.mark.parametrize("policy", POLICIES.names())
@pytest.mark.parametrize("store_policy", [StorePolicy.AT_ONCE, StorePolicy.AT_BOUNDARIES])
@pytest.mark.parametrize("blocks", [30, 60, 90])
def test_of_a_prompt_that_is_larger_than_memory_what_fits_is_kept(blocks, store_policy, policy):
    writer = Writer("full", blocks=blocks, policy=policy, store_policy=store_policy)
    prompt = list(range(100 * BLOCK + 1))
    assert [writer.serve_anew(prompt) for _ in range(5)] == [0, *[blocks] * 4]


@pytest.mark.parametrize(("blocks", "policy"), [(30, "lru"), (60, "resume_points")])
@pytest.mark.parametrize("layers", HYBRIDS)
def test_of_a_hybrids_prompt_nearly_all_that_fits_is_kept(layers, blocks, policy):
    """Two boundaries are whole at once: the last one, and the one that is to take its place."""
    writer = Writer(layers, blocks=blocks, policy=policy)
    prompt = list(range(100 * BLOCK + 1))
    resumed = [writer.serve_anew(prompt) for _ in range(4)]
    assert resumed[0] == 0
    assert resumed[1] >= 0.75 * writer.most_that_fits(100)
    assert resumed[1:] == [resumed[1]] * 3


@pytest.mark.parametrize("layers", ["full", "windows", "states", "windows and states"])
def test_of_a_prompt_that_is_larger_than_the_disk_what_fits_is_kept(layers):
    prompt = list(range(100 * BLOCK + 1))
    writer = Writer(layers, blocks=20, tiers=[NaiveTier(8_000)])
    resumed = [writer.serve_anew(prompt) for _ in range(4)]
    assert resumed[0] == 0
    assert 10 < resumed[1] < 100
    assert resumed == sorted(resumed), "what is resumed need not be written again, so more fits"


@pytest.mark.parametrize("has_disk", [False, True])
@pytest.mark.parametrize("store_policy", [StorePolicy.AT_ONCE, StorePolicy.AT_BOUNDARIES])
@pytest.mark.parametrize("layers", ["full", "windows", "states", "windows and states"])
def test_of_a_prompt_that_is_larger_than_its_tenants_quota_what_fits_is_kept(layers, store_policy, has_disk):
    prompt = list(range(100 * BLOCK + 1))
    whole = sum(group.chunk_bytes for group in Writer(layers, blocks=1).groups)
    writer = Writer(
        layers,
        blocks=400,
        tiers=[NaiveTier(1 << 20)] if has_disk else [],
        quota=40 * whole,
        store_policy=store_policy,
    )
    resumed = [writer.serve_anew(prompt) for _ in range(4)]
    assert resumed[0] == 0
    assert resumed[1] >= 20
    assert resumed == sorted(resumed)
