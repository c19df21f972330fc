from dataclasses import replace
from math import gcd

import pytest
from hypothesis import given, strategies as st

from octavo.errors import BlockSizeError, NotEnoughMemoryError, PlanError, UnregisteredSpecError
from octavo.planning.capacity import blocks_of_request, measure_capacity
from octavo.planning.kv_cache_config import KVCacheConfig
from octavo.planning.planner import plan_kv_cache
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    RequestLimits,
    SinkFullAttentionSpec,
    SlidingWindowSpec,
)

GIB = 1 << 30
LIMITS = RequestLimits(max_model_len=131072)


def full(**changes: object) -> FullAttentionSpec:
    return replace(FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128), **changes)


def window(size: int = 1024, **changes: object) -> SlidingWindowSpec:
    return replace(SlidingWindowSpec(block_size=16, num_kv_heads=8, head_size=128, sliding_window=size), **changes)


def state(**changes: object) -> MambaSpec:
    spec = MambaSpec(
        block_size=16, shapes=((3, 8192), (32, 128, 128)), dtypes=(CacheDType.BFLOAT16, CacheDType.FLOAT32)
    )
    return replace(spec, **changes)


def layers(*specs: tuple[int, KVCacheSpec]) -> dict[str, KVCacheSpec]:
    flat = [spec for count, spec in specs for _ in range(count)]
    return {f"layers.{i}": spec for i, spec in enumerate(flat)}


heads = st.integers(1, 8)
sizes = st.sampled_from([16, 24, 64, 80, 128])
block_sizes = st.sampled_from([8, 16, 48, 64])
dtypes = st.sampled_from(list(CacheDType))
any_spec = st.one_of(
    st.builds(FullAttentionSpec, block_size=block_sizes, num_kv_heads=heads, head_size=sizes, dtype=dtypes),
    st.builds(MLAAttentionSpec, block_size=block_sizes, head_size=st.sampled_from([132, 576])),
    st.builds(HiddenStateCacheSpec, block_size=block_sizes, head_size=sizes),
    st.builds(
        SlidingWindowSpec,
        block_size=block_sizes,
        num_kv_heads=heads,
        head_size=sizes,
        sliding_window=st.integers(1, 300),
    ),
    st.builds(
        ChunkedLocalAttentionSpec,
        block_size=block_sizes,
        num_kv_heads=heads,
        head_size=sizes,
        attention_chunk_size=st.integers(1, 300),
    ),
    st.builds(SinkFullAttentionSpec, block_size=block_sizes, num_kv_heads=heads, head_size=sizes, sink_len=heads),
    st.builds(
        MambaSpec,
        block_size=block_sizes,
        shapes=st.tuples(st.tuples(heads, sizes), st.tuples(heads, sizes, sizes)),
        dtypes=st.just((CacheDType.BFLOAT16, CacheDType.FLOAT32)),
        num_speculative_tokens=st.integers(0, 2),
    ),
    st.builds(CrossAttentionSpec, block_size=block_sizes, num_kv_heads=heads, head_size=sizes),
    st.builds(EncoderOnlyAttentionSpec, block_size=block_sizes, num_kv_heads=heads, head_size=sizes),
)
layer_sets = st.lists(st.tuples(st.integers(1, 3), any_spec), min_size=1, max_size=6).map(lambda s: layers(*s))


@given(
    layers=layer_sets,
    memory=st.integers(1, 1 << 28),
    context=st.integers(1, 4096),
    step=st.integers(1, 512),
    encoder=st.integers(0, 100),
    null_block=st.booleans(),
)
def test_every_page_lies_in_one_sheet_and_waste_is_what_counting_finds(
    layers, memory, context, step, encoder, null_block
):
    limits = RequestLimits(max_model_len=context, max_step_tokens=step, max_encoder_tokens=encoder)
    try:
        config = plan_kv_cache(layers, memory_bytes=memory, limits=limits, null_block=null_block)
    except PlanError:
        return
    assert sorted(n for g in config.groups for n in g.layer_names) == sorted(layers)
    check_geometry(config)
    check_waste(config)


def check_geometry(config: KVCacheConfig) -> None:
    assert config.num_sheets * config.sheet_bytes <= config.memory_bytes
    for group in config.groups:
        assert group.block_size % config.hash_block_size == 0
        cls = config.class_of(group)
        if cls is None:
            assert not group.spec.max_blocks_per_request(config.limits)
            continue
        assert cls.page_bytes * cls.pages_per_sheet == config.sheet_bytes
        assert cls.num_blocks == config.num_sheets * cls.pages_per_sheet
        assert cls.page_bytes % config.alignment_bytes == 0
        for block in {0, 1, cls.pages_per_sheet - 1, cls.num_blocks - 1}:
            first, last = block * cls.page_bytes, block * cls.page_bytes + group.page_bytes - 1
            assert first // config.sheet_bytes == last // config.sheet_bytes < config.num_sheets
        end = 0
        for name, offset in group.layer_offsets.items():
            assert offset >= end
            assert offset % config.alignment_bytes == 0
            assert offset % group.spec.specs[name].alignment_bytes == 0
            end = offset + group.spec.specs[name].page_size_bytes
        assert end <= group.page_bytes <= cls.page_bytes


def check_waste(config: KVCacheConfig) -> None:
    capacity = measure_capacity(config)
    assert capacity.requests_at_once >= 1
    last = capacity.tokens - capacity.requests_at_once * capacity.context
    assert 0 <= last < capacity.context
    last_blocks = blocks_of_request(config, last) if last else (0,) * len(config.groups)
    held = [capacity.requests_at_once * a + b for a, b in zip(capacity.blocks_per_request, last_blocks, strict=True)]
    assert config.sheets_for(tuple(held)) <= config.num_sheets
    one_more = tuple(a + b for a, b in zip(held, capacity.blocks_per_request, strict=True))
    assert config.sheets_for(one_more) > config.num_sheets
    content = sum(
        blocks * sum(layer.unpadded_page_size_bytes for layer in group.spec.specs.values())
        for blocks, group in zip(held, config.groups, strict=True)
    )
    assert capacity.waste.total == config.memory_bytes - content
    assert capacity.waste_fraction == capacity.waste.total / config.memory_bytes
    assert min(getattr(capacity.waste, name) for name in capacity.waste.__slots__) >= 0


def test_one_kind_of_layer_wastes_nothing():
    config = plan_kv_cache(layers((32, full())), memory_bytes=40 * GIB, limits=LIMITS)
    capacity = measure_capacity(config)
    assert config.sheet_bytes == 32 * 65536
    assert capacity.tokens == 40 * GIB // (32 * 4096) == 327680
    assert capacity.requests_at_once == 2
    assert capacity.waste.total == 0


def test_a_window_beside_full_attention_makes_two_groups_that_share_a_class():
    config = plan_kv_cache(layers((18, window(128)), (18, full())), memory_bytes=40 * GIB, limits=LIMITS)
    assert [group.kind for group in config.groups] == ["full_attention", "sliding_window"]
    assert [group.page_class for group in config.groups] == [0, 0]


def test_state_beside_attention_keeps_small_blocks():
    config = plan_kv_cache(
        layers((12, full(num_kv_heads=2, head_size=256)), (36, state())), memory_bytes=40 * GIB, limits=LIMITS
    )
    attention, recurrent = config.groups
    assert (attention.block_size, recurrent.block_size) == (16, 16)
    assert recurrent.page_bytes > 100 * attention.page_bytes
    assert measure_capacity(config).waste_fraction < 0.01
    checkpoint = recurrent.page_bytes / config.checkpoint_interval_tokens
    assert checkpoint <= attention.page_bytes / attention.block_size / 4


def test_full_attention_is_the_first_group_though_a_window_has_more_blocks():
    """As in DeepSeek V4, where a compressor keeps tokens in blocks of four."""
    config = plan_kv_cache(
        layers((2, window(8, block_size=4)), (2, full(block_size=256))), memory_bytes=16 * GIB, limits=LIMITS
    )
    assert [group.kind for group in config.groups] == ["full_attention", "sliding_window"]
    assert config.groups[1].spec.max_blocks_per_request(LIMITS) > config.groups[0].spec.max_blocks_per_request(LIMITS)


def test_checkpoints_lie_where_all_groups_can_resume():
    config = plan_kv_cache(layers((4, full()), (4, state(block_size=24))), memory_bytes=40 * GIB, limits=LIMITS)
    assert (config.resume_granularity, config.hash_block_size) == (48, 8)
    assert config.checkpoint_interval_tokens % 48 == 0


def test_windows_are_no_growing_cache_beside_which_checkpoints_are_light():
    few = plan_kv_cache(layers((4, full()), (4, state())), memory_bytes=40 * GIB, limits=LIMITS)
    many = plan_kv_cache(layers((4, full()), (4, state()), (40, window())), memory_bytes=40 * GIB, limits=LIMITS)
    assert many.checkpoint_interval_tokens == few.checkpoint_interval_tokens


def test_a_layer_has_the_room_that_its_own_padding_asks_for():
    config = plan_kv_cache(layers((2, full(page_size_padded=70_000))), memory_bytes=40 * GIB, limits=LIMITS)
    (group,) = config.groups
    assert (list(group.layer_offsets.values()), group.page_bytes) == ([0, 70_144], 140_288)
    assert group.unpadded_page_bytes == 2 * 65536


def test_the_padding_of_layers_is_counted_once():
    """16 tokens of 132 elements are 4,224 bytes, and 4,352 with the alignment of 256."""
    config = plan_kv_cache(
        layers((2, MLAAttentionSpec(block_size=16, head_size=132))),
        memory_bytes=8704 * 100,
        limits=RequestLimits(max_model_len=160),
    )
    capacity = measure_capacity(config)
    assert capacity.requests_at_once == 10
    assert (capacity.waste.layer_padding, capacity.waste.total) == (25600, 25600)


def test_without_growing_attention_checkpoints_are_taken_at_promised_boundaries_only():
    config = plan_kv_cache(layers((64, state())), memory_bytes=40 * GIB, limits=LIMITS)
    assert config.checkpoint_interval_tokens is None


def test_a_draft_model_has_groups_of_its_own():
    config = plan_kv_cache(layers((4, full())), memory_bytes=4 * GIB, limits=LIMITS, draft_layers={"layers.3"})
    assert [(group.is_draft, group.layer_names) for group in config.groups] == [
        (False, ("layers.0", "layers.1", "layers.2")),
        (True, ("layers.3",)),
    ]


def test_sinks_and_null_rows_are_reserved_and_counted():
    sinks = SinkFullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, sink_len=17)
    config = plan_kv_cache(layers((2, sinks)), memory_bytes=4 * GIB, limits=LIMITS, null_block=True)
    assert config.groups[0].reserved_blocks == 3
    assert measure_capacity(config).waste.reserved == 3 * config.page_classes[0].page_bytes


def test_encoder_only_layers_take_no_memory():
    encoder = EncoderOnlyAttentionSpec(block_size=16, num_kv_heads=8, head_size=128)
    config = plan_kv_cache(layers((2, full()), (24, encoder)), memory_bytes=4 * GIB, limits=LIMITS)
    assert config.groups[1].page_class is None
    assert config.sheet_bytes == config.groups[0].page_bytes


def test_too_little_memory_names_both_numbers_and_the_longest_context():
    memory = 10 * GIB
    with pytest.raises(NotEnoughMemoryError) as caught:
        plan_kv_cache(layers((32, full())), memory_bytes=memory, limits=LIMITS)
    assert "10 GiB cannot hold one request of 131,072 tokens, which needs 16 GiB" in str(caught.value)
    assert "81,920 tokens" in str(caught.value)
    fitting = RequestLimits(max_model_len=81_920)
    assert plan_kv_cache(layers((32, full())), memory_bytes=memory, limits=fitting)
    with pytest.raises(NotEnoughMemoryError):
        plan_kv_cache(layers((32, full())), memory_bytes=memory, limits=RequestLimits(max_model_len=81_921))


def test_context_is_shortened_on_request():
    config = plan_kv_cache(layers((32, full())), memory_bytes=10 * GIB, limits=LIMITS, shorten_context=True)
    assert config.limits.max_model_len == 81_920


def test_memory_smaller_than_a_page_is_refused():
    with pytest.raises(NotEnoughMemoryError, match="not even one block"):
        plan_kv_cache(layers((32, full())), memory_bytes=1 << 20, limits=LIMITS, shorten_context=True)


def test_a_hash_block_that_does_not_fit_names_the_group_and_a_size_that_does():
    both = layers((1, full()), (1, state(block_size=48)))
    with pytest.raises(BlockSizeError, match=r"block_size = 16 of group full_attention .* hash_block_size = 32; 16"):
        plan_kv_cache(both, memory_bytes=4 * GIB, limits=LIMITS, hash_block_size=32)
    assert plan_kv_cache(both, memory_bytes=4 * GIB, limits=LIMITS).hash_block_size == gcd(16, 48)


def test_impossible_layer_sets_are_refused():
    encoder = EncoderOnlyAttentionSpec(block_size=16, num_kv_heads=8, head_size=128)
    for bad, message in (({}, "no layers"), (layers((2, encoder)), "keeps anything")):
        with pytest.raises(PlanError, match=message):
            plan_kv_cache(bad, memory_bytes=4 * GIB, limits=LIMITS)
    with pytest.raises(PlanError, match=r"layers\.9"):
        plan_kv_cache(layers((2, full())), memory_bytes=4 * GIB, limits=LIMITS, draft_layers=["layers.9"])
    with pytest.raises(PlanError, match="alignment_bytes = 2 is not a multiple of 4"):
        plan_kv_cache(layers((1, state())), memory_bytes=4 * GIB, limits=LIMITS, alignment_bytes=2)


def test_an_unregistered_spec_is_named_before_grouping():
    class Strange(KVCacheSpec):
        unpadded_page_size_bytes = 1

        def needed_blocks(self, point):
            return ()

        def max_blocks_per_request(self, limits):
            return 1

    with pytest.raises(UnregisteredSpecError, match=r"layers\.0 .*Strange"):
        plan_kv_cache({"layers.0": Strange(block_size=16)}, memory_bytes=4 * GIB, limits=LIMITS)
