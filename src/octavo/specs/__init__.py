"""What one layer needs: the kinds of specs, the registry that names their managers, and the resume rule.

Inside, where an arrow leads to what a module calls:

    base                        `KVCacheSpec`: what one layer keeps, and which blocks it needs to resume
    attention, encoder, state   the kinds, of elements from `dtypes`
    uniform                     layers of one type in one group, whatever their page sizes
    resume, resume_many         the resume rule over all groups, of one holder and of the engines of a fleet
    promises -> resume          the boundaries at which a writer says that others can resume
    manager                     the contract of a manager: what a group does with a request's blocks
    registry -> platform        which manager serves which spec, and how other packages bring theirs
"""

from octavo.specs.attention import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CircularBufferSpec,
    FullAttentionSpec,
    HiddenStateCacheSpec,
    MLAAttentionSpec,
    SinkFullAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    TQFullAttentionSpec,
)
from octavo.specs.base import (
    KVCacheSpec,
    RequestLimits,
    ResumePoint,
    blocks_holding,
    ceil_div,
    require_positive,
    union_of_ranges,
)
from octavo.specs.dtypes import CacheDType
from octavo.specs.encoder import CrossAttentionSpec, EncoderOnlyAttentionSpec
from octavo.specs.manager import (
    NULL_BLOCK,
    BlockTable,
    CachedSequence,
    FoundBlocks,
    PageCopy,
    PageHolder,
    SingleTypeKVCacheManager,
)
from octavo.specs.platform import Platform
from octavo.specs.promises import GroupBytes, PointWeights, PromisePlan, known_prefix
from octavo.specs.registry import KVCacheSpecMetadata, KVCacheSpecRegistry, register_kv_cache_spec
from octavo.specs.resume import (
    BlockAvailability,
    GroupAvailability,
    Resume,
    blocks_to_resume,
    last_boundary,
    longest_resume,
    resume_and_known,
    resume_granularity,
)
from octavo.specs.resume_many import GroupHolders, longest_resumes
from octavo.specs.state import MambaSpec
from octavo.specs.uniform import UniformTypeKVCacheSpecs

__all__ = [
    "NULL_BLOCK",
    "AttentionSpec",
    "BlockAvailability",
    "BlockTable",
    "CacheDType",
    "CachedSequence",
    "ChunkedLocalAttentionSpec",
    "CircularBufferSpec",
    "CrossAttentionSpec",
    "EncoderOnlyAttentionSpec",
    "FoundBlocks",
    "FullAttentionSpec",
    "GroupAvailability",
    "GroupBytes",
    "GroupHolders",
    "HiddenStateCacheSpec",
    "KVCacheSpec",
    "KVCacheSpecMetadata",
    "KVCacheSpecRegistry",
    "MLAAttentionSpec",
    "MambaSpec",
    "PageCopy",
    "PageHolder",
    "Platform",
    "PointWeights",
    "PromisePlan",
    "RequestLimits",
    "Resume",
    "ResumePoint",
    "SingleTypeKVCacheManager",
    "SinkFullAttentionSpec",
    "SlidingWindowMLASpec",
    "SlidingWindowSpec",
    "TQFullAttentionSpec",
    "UniformTypeKVCacheSpecs",
    "blocks_holding",
    "blocks_to_resume",
    "ceil_div",
    "known_prefix",
    "last_boundary",
    "longest_resume",
    "longest_resumes",
    "register_kv_cache_spec",
    "require_positive",
    "resume_and_known",
    "resume_granularity",
    "union_of_ranges",
]
