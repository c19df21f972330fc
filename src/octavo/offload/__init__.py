"""What requests ask of offloading: loads, stores, promises, and the way of chunks between memory and tiers."""

from octavo.host import MEMORY
from octavo.offload.building import make_offload_scheduler
from octavo.offload.config import OffloadConfig, make_offloading_manager
from octavo.offload.device import Device, OffloadedRequest
from octavo.offload.event_source import OffloadEventSource
from octavo.offload.load_choice import LoadChooser, LoadRule, MovingLine, Outlook, Way, first_token_s
from octavo.offload.load_speeds import LoadSpeed
from octavo.offload.load_story import LoadStory
from octavo.offload.loads import Readiness
from octavo.offload.lower_tier import OffloadLimits
from octavo.offload.manager import OffloadingManager
from octavo.offload.manager_values import OffloadStatus, PreparedLoad, PreparedStore
from octavo.offload.offloaded_blocks import ANYWHERE, IN_MEMORY
from octavo.offload.promises import PromiseRule
from octavo.offload.retentions import Retentions
from octavo.offload.scheduler import OffloadScheduler, OffloadStats, SchedulerLimits
from octavo.offload.shared import SharedConfig
from octavo.offload.stores import StorePolicy

__all__ = [
    "ANYWHERE",
    "IN_MEMORY",
    "MEMORY",
    "Device",
    "LoadChooser",
    "LoadRule",
    "LoadSpeed",
    "LoadStory",
    "MovingLine",
    "OffloadConfig",
    "OffloadEventSource",
    "OffloadLimits",
    "OffloadScheduler",
    "OffloadStats",
    "OffloadStatus",
    "OffloadedRequest",
    "OffloadingManager",
    "Outlook",
    "PreparedLoad",
    "PreparedStore",
    "PromiseRule",
    "Readiness",
    "Retentions",
    "SchedulerLimits",
    "SharedConfig",
    "StorePolicy",
    "Way",
    "first_token_s",
    "make_offload_scheduler",
    "make_offloading_manager",
]
