"""What one layer needs: the kinds of specs, the registry that names their managers, and the resume rule."""

from octavo.specs.attention import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    MLAAttentionSpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
)
from octavo.specs.base import KVCacheSpec, RequestLimits, ResumePoint
from octavo.specs.dtypes import CacheDType
from octavo.specs.encoder import CrossAttentionSpec, EncoderOnlyAttentionSpec
from octavo.specs.manager import SingleTypeKVCacheManager
from octavo.specs.platform import Platform
from octavo.specs.registry import KVCacheSpecMetadata, KVCacheSpecRegistry, register_kv_cache_spec
from octavo.specs.resume import (
    BlockAvailability,
    GroupAvailability,
    Resume,
    blocks_to_resume,
    last_boundary,
    longest_resume,
    resume_granularity,
)
from octavo.specs.state import MambaSpec
from octavo.specs.uniform import UniformTypeKVCacheSpecs

__all__ = [
    "AttentionSpec",
    "BlockAvailability",
    "CacheDType",
    "ChunkedLocalAttentionSpec",
    "CrossAttentionSpec",
    "EncoderOnlyAttentionSpec",
    "FullAttentionSpec",
    "GroupAvailability",
    "HiddenStateCacheSpec",
    "KVCacheSpec",
    "KVCacheSpecMetadata",
    "KVCacheSpecRegistry",
    "MLAAttentionSpec",
    "MambaSpec",
    "Platform",
    "RequestLimits",
    "Resume",
    "ResumePoint",
    "SingleTypeKVCacheManager",
    "SinkFullAttentionSpec",
    "SlidingWindowMLASpec",
    "SlidingWindowSpec",
    "TQFullAttentionSpec",
    "UniformTypeKVCacheSpecs",
    "blocks_to_resume",
    "last_boundary",
    "longest_resume",
    "register_kv_cache_spec",
    "resume_granularity",
]
