"""The slower side: where offloaded chunks are, what is loaded and stored, and the tiers below host memory."""

from octavo.offload.building import make_offload_scheduler
from octavo.offload.config import OffloadConfig, make_offloading_manager
from octavo.offload.device import Device, OffloadedRequest
from octavo.offload.loads import Readiness
from octavo.offload.lower_tier import OffloadLimits
from octavo.offload.manager import MEMORY, OffloadingManager
from octavo.offload.manager_values import OffloadStatus, PreparedLoad, PreparedStore
from octavo.offload.scheduler import OffloadScheduler, OffloadStats, SchedulerLimits
from octavo.offload.stores import StorePolicy

__all__ = [
    "MEMORY",
    "Device",
    "OffloadConfig",
    "OffloadLimits",
    "OffloadScheduler",
    "OffloadStats",
    "OffloadStatus",
    "OffloadedRequest",
    "OffloadingManager",
    "PreparedLoad",
    "PreparedStore",
    "Readiness",
    "SchedulerLimits",
    "StorePolicy",
    "make_offload_scheduler",
    "make_offloading_manager",
]
