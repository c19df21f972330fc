"""Which layers share a block table, and what their group is."""

from dataclasses import replace

import pytest
from hypothesis import given

from octavo.errors import SpecError
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpecRegistry,
    MambaSpec,
    MLAAttentionSpec,
    RequestLimits,
    ResumePoint,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
    UniformTypeKVCacheSpecs,
)
from octavo.testing import KVCacheSpecSuite, strategies

SIZE = {"block_size": 16, "num_kv_heads": 2, "head_size": 64}
FULL = FullAttentionSpec(**SIZE)
WIDE = FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128)
LATENT = MLAAttentionSpec(block_size=16, head_size=576)
INDEXER = MLAAttentionSpec(block_size=16, head_size=132, dtype=CacheDType.UINT8)
QUANTISED = TQFullAttentionSpec(**SIZE, slot_bytes=40)
HIDDEN = HiddenStateCacheSpec(block_size=16, head_size=4096)
SINKS = SinkFullAttentionSpec(**SIZE, sink_len=20)
WINDOW = SlidingWindowSpec(**SIZE, sliding_window=512)
LATENT_WINDOW = SlidingWindowMLASpec(block_size=16, head_size=576, sliding_window=512)
CHUNK = ChunkedLocalAttentionSpec(**SIZE, attention_chunk_size=8192)
STATE = MambaSpec(block_size=16, shapes=((4, 2),), dtypes=(CacheDType.BFLOAT16,))
CROSS = CrossAttentionSpec(**SIZE)


def group(*specs):
    return UniformTypeKVCacheSpecs.of({f"layers.{i}": spec for i, spec in enumerate(specs)})


class TestUniformGroups(KVCacheSpecSuite):
    def specs(self):
        return strategies.uniform_groups()

    def test_is_uniform_with_itself(self):
        """A group is a group of layers, never of groups; its layers agree with each other."""
        one = group(FULL, WIDE)
        assert UniformTypeKVCacheSpecs.are_uniform(one.specs)
        with pytest.raises(SpecError, match="cannot share a block table"):
            group(one, one)


@pytest.mark.parametrize(
    "specs",
    [
        (FULL, WIDE),
        (FULL, LATENT),
        (LATENT, INDEXER),
        (FULL, QUANTISED),
        (FULL, replace(FULL, page_size_padded=10_000)),
        (SINKS, replace(SINKS, num_kv_heads=8)),
        (HIDDEN, replace(HIDDEN, head_size=64)),
        (WINDOW, replace(WINDOW, head_size=256)),
        (LATENT_WINDOW, replace(LATENT_WINDOW, head_size=132)),
        (CHUNK, replace(CHUNK, num_kv_heads=1)),
        (STATE, replace(STATE, shapes=((9,),))),
        (CROSS, replace(CROSS, num_kv_heads=1)),
    ],
    ids=lambda specs: "+".join(type(spec).__name__ for spec in specs),
)
def test_layers_that_share_a_block_table(specs):
    for order in (specs, specs[::-1]):
        one = group(*order)
        assert one.page_size_bytes == sum(spec.page_size_bytes for spec in specs)
        assert one.block_size == 16


@pytest.mark.parametrize(
    "specs",
    [
        (FULL, FULL.with_block_size(32)),
        (FULL, HIDDEN),
        (LATENT, HIDDEN),
        (FULL, SINKS),
        (SINKS, replace(SINKS, sink_len=21)),  # as many blocks, but not the same positions
        (FULL, WINDOW),
        (WINDOW, replace(WINDOW, sliding_window=1024)),
        (WINDOW, LATENT_WINDOW),
        (LATENT_WINDOW, replace(LATENT_WINDOW, sliding_window=513)),
        (FULL, CHUNK),
        (CHUNK, replace(CHUNK, attention_chunk_size=4096)),
        (STATE, FULL),
        (STATE, replace(STATE, num_speculative_tokens=1)),
        (CROSS, FULL),
    ],
    ids=lambda specs: "+".join(type(spec).__name__ for spec in specs),
)
def test_layers_that_do_not(specs):
    for order in (specs, specs[::-1], (*specs, specs[0])):
        assert not UniformTypeKVCacheSpecs.are_uniform({str(i): spec for i, spec in enumerate(order)})
        with pytest.raises(SpecError, match=r"cannot share a block table: layers\.0: "):
            group(*order)


def test_unequal_pages():
    one = group(FULL, WIDE, FULL)
    assert one.unpadded_page_size_bytes == 16 * (2 * 128 + 8 * 256 + 2 * 128) * 2
    assert one.distinct == (FULL, WIDE)
    assert one.first == FULL


def test_a_layers_own_padding_counts():
    assert group(FULL, replace(FULL, page_size_padded=10_000)).unpadded_page_size_bytes == FULL.page_size_bytes + 10_000


def test_the_strictest_alignment_counts():
    assert group(INDEXER, FULL).alignment_bytes == 2


@pytest.mark.parametrize(
    ("specs", "kind"),
    [
        ((FULL, WIDE), "full_attention"),
        ((LATENT, INDEXER), "mla_attention"),
        ((FULL, LATENT), "full_attention"),  # what they agreed on
        ((LATENT, FULL), "full_attention"),
        ((STATE,), "mamba"),
        ((SINKS, SINKS), "sink_full_attention"),
    ],
)
def test_kind(specs, kind):
    assert group(*specs).kind == kind


def test_a_group_answers_as_its_layers_do():
    limits = RequestLimits(max_model_len=4096, max_step_tokens=64)
    point = ResumePoint(num_tokens=2000)
    for spec in (FULL, WINDOW, CHUNK, STATE, CROSS, SINKS):
        one = group(spec, spec)
        assert one.needed_blocks(point) == spec.needed_blocks(point)
        assert one.max_blocks_per_request(limits) == spec.max_blocks_per_request(limits)
        assert one.holds_checkpoints is spec.holds_checkpoints
        assert one.indexes_decoder_tokens is spec.indexes_decoder_tokens
        assert one.reserved_blocks == spec.reserved_blocks
        assert KVCacheSpecRegistry.get_metadata(one) == KVCacheSpecRegistry.get_metadata(spec)


def test_the_order_of_layers_is_no_part_of_the_value():
    one = UniformTypeKVCacheSpecs.of({"a": FULL, "b": WIDE})
    other = UniformTypeKVCacheSpecs.of({"b": WIDE, "a": FULL})
    assert one == other
    assert hash(one) == hash(other)
    assert one != UniformTypeKVCacheSpecs.of({"a": FULL, "c": WIDE})


def test_a_group_keeps_its_own_layers():
    layers = {"a": FULL}
    one = UniformTypeKVCacheSpecs.of(layers)
    layers["b"] = HIDDEN
    assert dict(one.specs) == {"a": FULL}


def test_another_block_size():
    one = group(replace(FULL, page_size_padded=10_000), WIDE)
    assert one.with_block_size(32) == group(FULL.with_block_size(32), WIDE.with_block_size(32))


def test_an_empty_group_is_refused():
    with pytest.raises(SpecError, match="at least one layer"):
        UniformTypeKVCacheSpecs.of({})


def test_a_block_size_that_is_not_the_layers():
    with pytest.raises(SpecError, match="block_size = 32, but the layers have 16"):
        UniformTypeKVCacheSpecs(block_size=32, specs={"a": FULL})


@given(layers=strategies.layer_sets())
def test_layers_of_one_spec_are_always_uniform(layers):
    for spec in set(layers.values()):
        same = {name: other for name, other in layers.items() if other == spec}
        assert UniformTypeKVCacheSpecs.of(same).distinct == (spec,)
