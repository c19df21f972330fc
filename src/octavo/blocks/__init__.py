"""The device side: sheets and pages, the prefix index, and `KVCacheManager`, the facade that an engine calls."""

from octavo.blocks.compaction import PageMove, rows_held
from octavo.blocks.kv_cache_manager import KVCacheManager
from octavo.blocks.managers import EncoderBlocksManager, ResumeRuleManager
from octavo.blocks.pool import MEDIUM_DEVICE, BlockPool, ClassUsage
from octavo.blocks.request import RequestBlocks
from octavo.blocks.reservation import DeviceCache, Reservation
from octavo.blocks.resume_plan import ResumePlan
from octavo.blocks.room import Allocation
from octavo.blocks.state_manager import CheckpointManager
from octavo.blocks.stats import PrefixCacheStats
from octavo.events import CacheChanges, StoredRun
from octavo.specs import NULL_BLOCK, PageCopy

__all__ = [
    "MEDIUM_DEVICE",
    "NULL_BLOCK",
    "Allocation",
    "BlockPool",
    "CacheChanges",
    "CheckpointManager",
    "ClassUsage",
    "DeviceCache",
    "EncoderBlocksManager",
    "KVCacheManager",
    "PageCopy",
    "PageMove",
    "PrefixCacheStats",
    "RequestBlocks",
    "Reservation",
    "ResumePlan",
    "ResumeRuleManager",
    "StoredRun",
    "rows_held",
]
