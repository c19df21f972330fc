"""Every built-in manager keeps the contract of managers."""

from octavo.specs import EncoderOnlyAttentionSpec, MLAAttentionSpec, TQFullAttentionSpec
from octavo.testing import (
    KVCacheManagerSuite,
    SingleTypeKVCacheManagerSuite,
    chunked,
    circular,
    cross,
    full,
    sinks,
    small_model,
    state,
    window,
)


class TestAttention(SingleTypeKVCacheManagerSuite):
    max_examples = 8

    def specs(self):
        return [
            MLAAttentionSpec(block_size=4, head_size=8),
            TQFullAttentionSpec(block_size=4, num_kv_heads=1, head_size=4, slot_bytes=6),
            window(13),
            chunked(10),
            sinks(6),
        ]


class TestRecurrentState(SingleTypeKVCacheManagerSuite):
    max_examples = 8

    def specs(self):
        return [state(), state(speculative=2), state(8, elements=300)]


class TestCircularBuffers(SingleTypeKVCacheManagerSuite):
    max_examples = 8

    def specs(self):
        return [circular(), circular(2), circular(4, 12)]


class TestEncoders(SingleTypeKVCacheManagerSuite):
    max_examples = 8

    def specs(self):
        return [cross(), EncoderOnlyAttentionSpec(block_size=4, num_kv_heads=1, head_size=4)]


class TestDrafts(KVCacheManagerSuite):
    max_examples = 8

    def models(self):
        return [small_model(full(), window(9), drafts=[full()]), small_model(full(8), state(), drafts=[window(9, 8)])]
