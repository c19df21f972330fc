"""The device side: sheets and pages, the prefix index, and `KVCacheManager`, the facade that an engine calls.

Inside, where an arrow leads to what a module calls:

    kv_cache_manager          the facade; a request's life
    request, request_hashes   tokens, hashes and tables of one request
    resume_plan, room         where a request resumes; pages for its next step, or the refusal
    managers, state_manager   what a group keeps of a request, by kind of layer
    pool -> pages             sheets leased to page classes, the prefix index; the pages of one class
    compaction                held pages move together, so that a sheet gets free
    reservation               the device as offloading sees it
"""

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
