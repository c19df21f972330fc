"""Caches as DeepSeek V4 has them, of sizes that a test chooses."""

from octavo.specs import CacheDType, MLAAttentionSpec, SlidingWindowMLASpec


def records(tokens_per_state: int, record_bytes: int = 584) -> MLAAttentionSpec:
    """A record for so many tokens."""
    return MLAAttentionSpec(
        block_size=256, head_size=record_bytes, dtype=CacheDType.UINT8, tokens_per_state=tokens_per_state
    )


def latent_window(block_size: int, token_bytes: int) -> SlidingWindowMLASpec:
    """A window of two blocks."""
    return SlidingWindowMLASpec(
        block_size=block_size, head_size=token_bytes, dtype=CacheDType.UINT8, sliding_window=2 * block_size
    )
