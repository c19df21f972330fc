"""vLLM's plans, with numbers that the real vLLM 0.32 gave once (`tests/vllm/test_plan_parity.py` asks it again)."""

import pytest

from octavo.errors import BlockSizeError, NotEnoughMemoryError, PlanError, SpecError, UnregisteredSpecError
from octavo.planning.vllm_way import VllmGroup, plan_like_vllm
from octavo.specs import (
    CacheDType,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    KVCacheSpec,
    MambaSpec,
    MLAAttentionSpec,
    RequestLimits,
    SlidingWindowSpec,
)
from rigs.packed_layers import latent_window, records

MEMORY = 64 << 30
LIMITS = RequestLimits(max_model_len=131072, max_step_tokens=8192, max_encoder_tokens=1500)

FULL = FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128)
GDN = MambaSpec(block_size=16, shapes=((3, 8192), (32, 128, 128)), dtypes=(CacheDType.BFLOAT16, CacheDType.FLOAT32))
"""Qwen3-Next's state: 2,146,304 bytes."""


def window(tokens: int, heads: int = 8, head_size: int = 128) -> SlidingWindowSpec:
    return SlidingWindowSpec(block_size=16, num_kv_heads=heads, head_size=head_size, sliding_window=tokens)


def layers(*runs: tuple[int, KVCacheSpec], repeat: int = 1) -> dict[str, KVCacheSpec]:
    specs = [spec for _ in range(repeat) for count, spec in runs for _ in range(count)]
    return {f"layers.{i}": spec for i, spec in enumerate(specs)}


def shape(groups: tuple[VllmGroup, ...]) -> list[tuple[str, int, int]]:
    return [(group.kind, len(group.layer_names), group.block_size) for group in groups]


def test_alike_layers_are_one_group() -> None:
    plan = plan_like_vllm(layers((32, FULL)), memory_bytes=MEMORY, limits=LIMITS)
    assert shape(plan.groups) == [("full_attention", 32, 16)]
    assert plan.bytes_per_block == 2_097_152
    assert plan.num_blocks == 32_768
    assert plan.tokens == 524_288
    assert plan.requests_at_once == 4.0
    assert plan.waste_fraction == 0


def test_windows_are_cut_to_the_length_of_the_full_ones() -> None:
    """Gemma 3 27B: 52 windows beside 10 full layers. Four layers are missing in the two short groups."""
    wide = FullAttentionSpec(block_size=16, num_kv_heads=16, head_size=128)
    gemma = layers((5, window(1024, heads=16)), (1, wide), repeat=10) | {
        f"last.{i}": window(1024, heads=16) for i in range(2)
    }
    plan = plan_like_vllm(gemma, memory_bytes=MEMORY, limits=LIMITS)
    assert shape(plan.groups) == [("sliding_window", 9, 16)] * 4 + [("sliding_window", 8, 16)] * 2 + [
        ("full_attention", 10, 16)
    ]
    assert plan.groups[0].layer_names[:2] == ("layers.0", "layers.7")
    assert plan.bytes_per_block == 1_310_720 == plan.groups[-1].page_size_bytes
    assert plan.num_blocks == 52_428
    assert plan.tokens == 589_655
    assert plan.blocks_per_request == (577,) * 6 + (8192,)
    assert plan.requests_at_once == 52_428 / 11_654


def test_attention_grows_until_its_page_holds_a_state() -> None:
    """Qwen3-Next 80B: 1,048 tokens of attention weigh as much as a state, so a block has 1,056."""
    full = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=256)
    plan = plan_like_vllm(layers((3, GDN), (1, full), repeat=12), memory_bytes=MEMORY, limits=LIMITS)
    assert shape(plan.groups) == [("mamba", 12, 1056)] * 3 + [("full_attention", 12, 1056)]
    assert plan.bytes_per_block == 12 * 1056 * 2048
    assert plan.groups[0].page_size_bytes == plan.bytes_per_block
    assert plan.groups[0].useful_page_bytes == 12 * 2_146_304
    assert plan.blocks_per_request == (2, 2, 2, 125)
    assert plan.num_blocks == 2_647
    assert plan.tokens == 2_648_454
    spare = plan_like_vllm(layers((3, GDN), (1, full), repeat=12), memory_bytes=MEMORY, limits=LIMITS, spare_states=1)
    assert spare.blocks_per_request == (3, 3, 3, 125)


def test_short_requests_waste_most_of_a_grown_block() -> None:
    full = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=256)
    short = RequestLimits(max_model_len=128, max_step_tokens=128)
    plan = plan_like_vllm(layers((3, GDN), (1, full), repeat=12), memory_bytes=MEMORY, limits=short)
    per_request = 36 * 2 * 2_146_304 + 12 * 128 * 2048
    assert plan.waste_fraction == pytest.approx(1 - per_request / (7 * plan.bytes_per_block))
    assert plan.waste_fraction > 0.12


def test_latent_attention_beside_state_takes_blocks_of_128() -> None:
    """Kimi Linear: 1,152 bytes per token, a state of 2,170,880."""
    state = MambaSpec(
        block_size=16, shapes=((3, 12288), (32, 128, 128)), dtypes=(CacheDType.BFLOAT16, CacheDType.FLOAT32)
    )
    plan = plan_like_vllm(
        layers((20, state), (7, MLAAttentionSpec(block_size=16, head_size=576))), memory_bytes=MEMORY, limits=LIMITS
    )
    assert shape(plan.groups) == [
        ("mamba", 7, 1920),
        ("mamba", 7, 1920),
        ("mamba", 6, 1920),
        ("mla_attention", 7, 1920),
    ]
    assert plan.bytes_per_block == 15_482_880
    assert plan.tokens == 7_755_967


def test_an_indexer_takes_blocks_of_64() -> None:
    """DeepSeek V3.2: latents and what finds them, in one group whose layers' pages differ."""
    indexer = MLAAttentionSpec(block_size=16, head_size=132, dtype=CacheDType.UINT8)
    latent = MLAAttentionSpec(block_size=16, head_size=576)
    plan = plan_like_vllm(layers((1, indexer), (1, latent), repeat=61), memory_bytes=MEMORY, limits=LIMITS)
    assert shape(plan.groups) == [("mla_attention", 122, 64)]
    assert plan.bytes_per_block == 5_012_736
    assert plan.tokens == 877_312


def test_a_smaller_page_gets_more_tokens_where_it_divides_and_padding_where_not() -> None:
    divides = plan_like_vllm(layers((1, window(1024, heads=4)), (1, FULL)), memory_bytes=MEMORY, limits=LIMITS).groups
    assert shape(divides) == [("sliding_window", 1, 32), ("full_attention", 1, 16)]
    assert divides[0].page_size_bytes == divides[0].useful_page_bytes == 65_536

    padded = plan_like_vllm(
        layers((1, window(1024, head_size=96)), (1, FULL)), memory_bytes=MEMORY, limits=LIMITS
    ).groups
    assert shape(padded) == [("sliding_window", 1, 16), ("full_attention", 1, 16)]
    assert (padded[0].page_size_bytes, padded[0].useful_page_bytes) == (65_536, 49_152)


def test_nearly_equal_buckets_take_the_length_of_the_larger() -> None:
    plan = plan_like_vllm(layers((12, window(128)), (13, FULL)), memory_bytes=MEMORY, limits=LIMITS)
    assert shape(plan.groups) == [("sliding_window", 12, 16), ("full_attention", 13, 16)]
    assert plan.bytes_per_block == 13 * 65_536


def test_windows_beside_latents_are_kept_as_if_full() -> None:
    latent = MLAAttentionSpec(block_size=16, head_size=576)
    plan = plan_like_vllm(layers((20, latent), (2, window(2048, heads=4))), memory_bytes=MEMORY, limits=LIMITS)
    assert shape(plan.groups) == [("full_attention", 22, 16)]
    assert plan.bytes_per_block == 20 * 18_432 + 2 * 32_768
    assert plan.waste_fraction > 0.1


def test_cross_attention_counts_the_encoder_and_an_encoder_counts_nothing() -> None:
    whisper = layers(
        (32, FullAttentionSpec(block_size=16, num_kv_heads=20, head_size=64)),
        (32, CrossAttentionSpec(block_size=16, num_kv_heads=20, head_size=64)),
        (32, EncoderOnlyAttentionSpec(block_size=16, num_kv_heads=20, head_size=64)),
    )
    plan = plan_like_vllm(whisper, memory_bytes=MEMORY, limits=LIMITS)
    assert plan.blocks_per_request == (8192, 94)
    assert plan.tokens == 414_665


def test_steps_in_flight_keep_windows_longer() -> None:
    one, two = (
        plan_like_vllm(layers((4, window(1024))), memory_bytes=MEMORY, limits=LIMITS, steps_in_flight=steps)
        for steps in (1, 2)
    )
    assert (one.blocks_per_request, two.blocks_per_request) == ((577,), (1089,))


def test_a_value_as_long_as_its_key_is_no_other_format() -> None:
    same = FullAttentionSpec(block_size=16, num_kv_heads=8, head_size=128, head_size_v=128)
    plan = plan_like_vllm(layers((3, FULL), (1, same), (4, window(64))), memory_bytes=MEMORY, limits=LIMITS)
    assert shape(plan.groups) == [("full_attention", 4, 16), ("sliding_window", 4, 16)]


def test_refusals_say_why() -> None:
    with pytest.raises(PlanError, match=r"vLLM refuses these layers: the page of layers\.2 .* pads no latent"):
        plan_like_vllm(
            layers((1, GDN), (1, MLAAttentionSpec(block_size=16, head_size=576)), (1, _indexer())),
            memory_bytes=MEMORY,
            limits=LIMITS,
        )
    with pytest.raises(NotEnoughMemoryError, match=r"vLLM needs 16 GiB for one request of 131,072 tokens"):
        plan_like_vllm(layers((32, FULL)), memory_bytes=16 << 30, limits=LIMITS)
    with pytest.raises(PlanError, match="keeps anything between steps"):
        plan_like_vllm({}, memory_bytes=MEMORY, limits=LIMITS)


def _indexer() -> MLAAttentionSpec:
    return MLAAttentionSpec(block_size=16, head_size=132, dtype=CacheDType.UINT8)


def test_what_is_not_modelled_is_refused() -> None:
    with pytest.raises(PlanError, match="hidden-state"):
        plan_like_vllm(
            layers((2, FULL), (1, HiddenStateCacheSpec(block_size=16, head_size=4096))),
            memory_bytes=MEMORY,
            limits=LIMITS,
        )


def test_a_block_size_that_a_spec_refuses() -> None:
    class InEights(FullAttentionSpec):
        def with_block_size(self, block_size: int) -> FullAttentionSpec:
            raise SpecError(f"{block_size} is not a multiple of 24")

    with pytest.raises(BlockSizeError, match="vLLM's block size for these layers is 16, but 16 is not a multiple"):
        plan_like_vllm(
            {"odd": InEights(block_size=24, num_kv_heads=1, head_size=8)}, memory_bytes=MEMORY, limits=LIMITS
        )


def test_groups_of_a_packed_block_repeat_a_pattern() -> None:
    """A pattern of two page sizes comes five times, so nine windows are cut into five and four."""
    pattern = [(1, records(4)), (1, records(4, 132)), (1, latent_window(4, 8192)), (1, latent_window(4, 2048))]
    plan = plan_like_vllm(layers(*pattern * 5, (9, latent_window(64, 584))), memory_bytes=MEMORY, limits=LIMITS)
    assert shape(plan.groups) == [
        ("mla_attention", 10, 256),
        ("sliding_window_mla", 10, 4),
        ("sliding_window_mla", 5, 64),
        ("sliding_window_mla", 4, 64),
    ]
    assert plan.bytes_per_block == 229_120


def test_windows_of_a_packed_block_fit_beside_the_latents() -> None:
    """No pattern has two page sizes, so windows are cut to what the latents' block holds."""
    plan = plan_like_vllm(
        layers((5, records(128)), (7, latent_window(4, 584)), (2, latent_window(8, 584))),
        memory_bytes=MEMORY,
        limits=LIMITS,
    )
    assert [len(group.layer_names) for group in plan.groups] == [5, 2, 2, 2, 1, 1, 1]
    assert plan.bytes_per_block == 5 * 2 * 584


def test_an_unregistered_spec_is_named() -> None:
    class Foreign(KVCacheSpec):
        @property
        def unpadded_page_size_bytes(self) -> int:
            return 1

        def needed_blocks(self, point: object) -> tuple[range, ...]:
            return ()

        def max_blocks_per_request(self, limits: object) -> int:
            return 1

    with pytest.raises(UnregisteredSpecError, match="odd"):
        plan_like_vllm({"odd": Foreign(block_size=16)}, memory_bytes=MEMORY, limits=LIMITS)
