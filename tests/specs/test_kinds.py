"""Every built-in kind: the conformance suite, and values worked out by hand."""

import pytest
from hypothesis import given, strategies as st

from octavo.errors import SpecError
from octavo.specs import (
    CacheDType,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
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
)
from octavo.testing import KVCacheSpecSuite, strategies


class TestFullAttention(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(FullAttentionSpec)


class TestMLAAttention(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(MLAAttentionSpec)


class TestHiddenStateCache(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(HiddenStateCacheSpec)


class TestSinkFullAttention(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(SinkFullAttentionSpec)


class TestTQFullAttention(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(TQFullAttentionSpec)


class TestSlidingWindow(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(SlidingWindowSpec)


class TestSlidingWindowMLA(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(SlidingWindowMLASpec)


class TestChunkedLocalAttention(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(ChunkedLocalAttentionSpec)


class TestCircularBuffer(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(CircularBufferSpec)


class TestMamba(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(MambaSpec)


class TestCrossAttention(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(CrossAttentionSpec)


class TestEncoderOnlyAttention(KVCacheSpecSuite):
    def specs(self):
        return strategies.specs(EncoderOnlyAttentionSpec)


class TestAFewSpecs(KVCacheSpecSuite):
    """A suite may name its specs one by one."""

    def specs(self):
        return [full(), full(block_size=528)]


def full(**changes):
    return FullAttentionSpec(**{"block_size": 16, "num_kv_heads": 8, "head_size": 128} | changes)


def window(sliding_window, **changes):
    values = {"block_size": 16, "num_kv_heads": 8, "head_size": 128} | changes
    return SlidingWindowSpec(**values, sliding_window=sliding_window)


def chunked(attention_chunk_size, **changes):
    values = {"block_size": 16, "num_kv_heads": 8, "head_size": 128} | changes
    return ChunkedLocalAttentionSpec(**values, attention_chunk_size=attention_chunk_size)


def circular(**changes):
    return CircularBufferSpec(
        **{"block_size": 16, "num_kv_heads": 2, "head_size": 128, "tokens_per_state": 4} | changes
    )


def mamba(**changes):
    return MambaSpec(**{"block_size": 16, "shapes": ((4, 2),), "dtypes": (CacheDType.BFLOAT16,)} | changes)


@pytest.mark.parametrize(
    ("spec", "page_size_bytes"),
    [
        (full(), 16 * 8 * (128 + 128) * 2),
        (full(head_size=192, head_size_v=128), 16 * 8 * (192 + 128) * 2),
        (full(dtype=CacheDType.FP8_E4M3), 16 * 8 * (128 + 128)),
        (full(dtype=CacheDType.FP8_PER_TOKEN_HEAD), 16 * 8 * 2 * (128 + 4)),
        (full(dtype=CacheDType.INT8_PER_TOKEN_HEAD), 16 * 8 * 2 * (128 + 4)),
        (full(dtype=CacheDType.INT4_PER_TOKEN_HEAD), 16 * 8 * 2 * (64 + 4)),
        (full(dtype=CacheDType.INT4_PER_TOKEN_HEAD, head_size=81), 16 * 8 * 2 * (41 + 4)),  # half a byte rounds up
        (full(page_size_padded=100_000), 100_000),
        (window(1024), 16 * 8 * (128 + 128) * 2),
        (chunked(8192), 16 * 8 * (128 + 128) * 2),
        (MLAAttentionSpec(block_size=64, head_size=576), 64 * 576 * 2),  # one latent, no value vector
        (MLAAttentionSpec(block_size=64, head_size=576, state_bytes=656), 64 * 656),  # fp8, scales and RoPE packed
        (MLAAttentionSpec(block_size=64, head_size=576, state_bytes=656, tokens_per_state=4), 16 * 656),
        (
            MLAAttentionSpec(block_size=64, head_size=128, dtype=CacheDType.FP8_PER_TOKEN_HEAD),
            64 * (128 + 4),
        ),  # indexer
        (SlidingWindowMLASpec(block_size=64, head_size=576, sliding_window=512), 64 * 576 * 2),
        (HiddenStateCacheSpec(block_size=16, head_size=4096), 16 * 4096 * 2),
        (circular(), 16 * 2 * 128 * 2),  # as many vectors as heads
        (TQFullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, slot_bytes=70), 16 * 8 * 70),
    ],
)
def test_page_size(spec, page_size_bytes):
    assert spec.page_size_bytes == page_size_bytes


@pytest.mark.parametrize(
    ("dtype", "alignment_bytes"),
    [
        (CacheDType.FLOAT32, 4),
        (CacheDType.BFLOAT16, 2),
        (CacheDType.FP8_E4M3, 1),
        (CacheDType.INT8_PER_TOKEN_HEAD, 4),  # the float32 scale
        (CacheDType.INT4_PER_TOKEN_HEAD, 4),
    ],
)
def test_alignment(dtype, alignment_bytes):
    assert full(dtype=dtype).alignment_bytes == alignment_bytes


def test_each_tensor_of_a_state_is_aligned_for_its_type():
    # 3 bf16 elements end at byte 6; float32 begins at 8.
    spec = mamba(shapes=((3,), (2, 2), (5,)), dtypes=(CacheDType.BFLOAT16, CacheDType.FLOAT32, CacheDType.UINT8))
    assert spec.tensor_offsets == (0, 8, 24)
    assert spec.page_size_bytes == 29
    assert spec.alignment_bytes == 4


def test_qwen3_next_state():
    # A convolution of 8192 channels and 3 steps, and 32 heads of 128 x 128.
    spec = mamba(shapes=((8192, 3), (32, 128, 128)), dtypes=(CacheDType.BFLOAT16, CacheDType.FLOAT32))
    assert spec.tensor_offsets == (0, 49_152)
    assert spec.page_size_bytes == 49_152 + 2_097_152


@pytest.mark.parametrize(("sink_len", "blocks"), [(1, 1), (16, 1), (17, 2), (128, 8)])
def test_sinks_reserve_whole_blocks(sink_len, blocks):
    spec = SinkFullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, sink_len=sink_len)
    assert spec.reserved_blocks == blocks
    assert full().reserved_blocks == 0


@pytest.mark.parametrize(
    ("spec", "needed"),
    [
        (full(), (range(63),)),
        (window(64), (range(58, 63),)),  # tokens [937, 1000): 937 is in block 58, 999 in 62
        (window(1), ()),
        (window(2), (range(62, 63),)),
        (window(5000), (range(63),)),
        (chunked(1000), ()),
        (chunked(300), (range(56, 63),)),  # the chunk began at 900
        (circular(tokens_per_state=16), (range(62, 63),)),  # tokens 992 to 999 wait for their record
        (circular(), ()),
        (mamba(), (range(62, 63),)),
        (CrossAttentionSpec(block_size=16, num_kv_heads=8, head_size=128), (range(94),)),
        (EncoderOnlyAttentionSpec(block_size=16, num_kv_heads=8, head_size=128), ()),
    ],
)
def test_needed_blocks(spec, needed):
    assert spec.needed_blocks(ResumePoint(num_tokens=1000, num_encoder_tokens=1500)) == needed


LIMITS = RequestLimits(max_model_len=131_072, max_step_tokens=8192, max_encoder_tokens=1500)


@pytest.mark.parametrize(
    ("spec", "most"),
    [
        (full(), 8192),
        (window(1024), 577),  # 1023 + 8192 tokens, which may begin inside a block
        (window(131_072), 8192),  # never more than the whole request
        (chunked(8192), 1025),
        (circular(), 1),
        (mamba(num_speculative_tokens=2), 4),  # three running states and a checkpoint
        (CrossAttentionSpec(block_size=16, num_kv_heads=8, head_size=128), 94),
        (EncoderOnlyAttentionSpec(block_size=16, num_kv_heads=8, head_size=128), 0),
    ],
)
def test_max_blocks_per_request(spec, most):
    assert spec.max_blocks_per_request(LIMITS) == most


@given(spec=strategies.specs(SlidingWindowSpec) | strategies.specs(ChunkedLocalAttentionSpec), data=st.data())
def test_a_step_in_flight_fits_too(spec, data):
    limits = data.draw(strategies.request_limits())
    computed = data.draw(st.integers(0, limits.max_model_len - 1))
    end = min(computed + limits.max_step_tokens, limits.max_model_len)
    needed = [block for r in spec.needed_blocks(ResumePoint(num_tokens=computed)) for block in r]
    computing = range(computed // spec.block_size, -(-end // spec.block_size))
    assert len({*needed, *computing}) <= spec.max_blocks_per_request(limits)


NOT_POSITIVE = [0, -1, 1.5, "16", None, True]
NOT_COUNTS = [-1, 1.5, "16", None, True]


@pytest.mark.parametrize("value", NOT_POSITIVE)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (full, "block_size"),
        (full, "num_kv_heads"),
        (full, "head_size"),
        (window, "sliding_window"),
        (chunked, "attention_chunk_size"),
        (mamba, "block_size"),
        (circular, "block_size"),
        (circular, "tokens_per_state"),
        (lambda **kw: SinkFullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, **kw), "sink_len"),
        (lambda **kw: TQFullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, **kw), "slot_bytes"),
        (lambda **kw: MLAAttentionSpec(**{"block_size": 64, "head_size": 576} | kw), "block_size"),
        (lambda **kw: MLAAttentionSpec(block_size=64, head_size=576, **kw), "tokens_per_state"),
        (RequestLimits, "max_model_len"),
        (lambda **kw: RequestLimits(max_model_len=1, **kw), "max_step_tokens"),
        (lambda **kw: RequestLimits(max_model_len=1, **kw), "least_step_tokens"),
    ],
)
def test_sizes_are_whole_numbers_of_one_or_more(make, name, value):
    with pytest.raises(SpecError, match=f"{name} must be a whole number of 1 or more, not "):
        make(**{name: value})


@pytest.mark.parametrize("value", NOT_COUNTS)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (mamba, "num_speculative_tokens"),
        (lambda **kw: RequestLimits(max_model_len=1, **kw), "max_encoder_tokens"),
    ],
)
def test_counts_are_whole_numbers(make, name, value):
    with pytest.raises(SpecError, match=f"{name} must be a whole number of 0 or more, not "):
        make(**{name: value})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: full(page_size_padded=65_535), "65535 is smaller than the 65536 bytes"),
        (lambda: full(page_size_padded=0), "page_size_padded = 0"),
        (lambda: full(page_size_padded=70_000.0), "page_size_padded"),
        (lambda: full(page_size_padded="70000"), "page_size_padded"),
        (lambda: full(head_size_v=-1), "head_size_v"),
        (lambda: MLAAttentionSpec(block_size=64, head_size=576, state_bytes=0), "state_bytes"),
        (lambda: MLAAttentionSpec(block_size=64, head_size=576, tokens_per_state=3), "would cut a stored vector"),
        (lambda: circular(tokens_per_state=3), "a record would be open"),
        (lambda: mamba(shapes=(), dtypes=()), "at least one shape"),
        (lambda: mamba(shapes=((1,), (2,))), "2 shapes and 1 dtypes"),
        (lambda: mamba(shapes=((4, 0),)), "size below 1"),
        (lambda: mamba(shapes=((4, 1.5),)), "1.5"),
        (lambda: full().with_block_size(0), "block_size"),
    ],
)
def test_impossible_values_are_refused(make, message):
    with pytest.raises(SpecError, match=message):
        make()


def test_padding_is_for_one_block_size():
    assert full(page_size_padded=70_000).with_block_size(32) == full(block_size=32)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bfloat16", CacheDType.BFLOAT16),
        ("torch.bfloat16", CacheDType.BFLOAT16),
        ("BF16", CacheDType.BFLOAT16),
        ("half", CacheDType.FLOAT16),
        ("fp8", CacheDType.FP8_E4M3),
        ("float8_e5m2", CacheDType.FP8_E5M2),
        ("int4", CacheDType.INT4_PER_TOKEN_HEAD),
    ],
)
def test_dtype_spellings(name, dtype):
    assert CacheDType.parse(name) is dtype


def test_a_spec_takes_a_dtype_by_name():
    assert full(dtype="bfloat16") == full(dtype=CacheDType.BFLOAT16)
    assert full(dtype="torch.float16").page_size_bytes == full(dtype=CacheDType.FLOAT16).page_size_bytes
    assert mamba(dtypes=["bf16"]) == mamba(dtypes=(CacheDType.BFLOAT16,))
    for make in (lambda: full(dtype="bfloat"), lambda: full(dtype=16), lambda: mamba(dtypes=(None,))):
        with pytest.raises(SpecError, match=r"unknown dtype .*; known are"):
            make()


def test_an_unknown_dtype_lists_the_known_ones():
    with pytest.raises(SpecError, match=r"unknown dtype 'complex64'; known are: .*bfloat16.*fp8"):
        CacheDType.parse("complex64")


def test_there_is_a_strategy_for_every_builtin_kind():
    with KVCacheSpecRegistry.scoped(fresh=True):
        builtin = {kind for kind in KVCacheSpecRegistry.registered_specs() if kind.__module__.startswith("octavo.")}
    assert set(strategies.BUILTIN_KINDS) == builtin
    kinds = [kind.kind for kind in strategies.BUILTIN_KINDS]
    assert "unknown" not in kinds
