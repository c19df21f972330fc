"""What requests ask of offloading: loads, stores, promises, and the way of chunks between memory and tiers.

Inside, where an arrow leads to what a module calls:

    scheduler                                   what an engine calls: a request's life
    loader -> load_plan, load_worth, promises   what a waiting request loads, and which points it keeps
    load_worth -> load_ways -> load_choice      what loads take, and whether they are worth it or computing is quicker
    storer -> store_plan, store_pins            the points that are promised, and the chunks that keep the promise
    hints, retentions                           how long clients say that a prompt will be wanted
    manager -> finder, jobs                     which chunk lies in which slots of the arena, and what is on its way
    tiers_below -> promotions, write_through    from the tiers to the arena, and from the arena to the tiers
    lower_tier -> told_chunks                   one tier behind a fence; what is told of it
    tenants -> quotas                           what a tenant keeps below the device
    event_source                                from changes to events
    config, building, shared                    settings, and the parts made of them
"""

from octavo.host import MEMORY
from octavo.offload.building import make_offload_scheduler
from octavo.offload.config import OffloadConfig, make_offloading_manager
from octavo.offload.device import Device, OffloadedRequest
from octavo.offload.event_source import OffloadEventSource
from octavo.offload.load_choice import LoadChooser, LoadRule, MovingLine, Outlook, Way, first_token_s
from octavo.offload.load_speeds import LoadSpeed
from octavo.offload.load_story import LoadStory
from octavo.offload.load_ways import ChunkToLoad, keys_to_probe, way_to_load
from octavo.offload.loader import Readiness
from octavo.offload.lower_tier import OffloadLimits
from octavo.offload.manager import OffloadingManager
from octavo.offload.manager_values import OffloadStatus, PreparedLoad, PreparedStore
from octavo.offload.offloaded_blocks import ANYWHERE, IN_MEMORY
from octavo.offload.promises import PromiseRule
from octavo.offload.retentions import Retentions
from octavo.offload.scheduler import OffloadScheduler, OffloadSchedulerLimits, OffloadStats
from octavo.offload.shared import SharedConfig
from octavo.offload.storer import StorePolicy

__all__ = [
    "ANYWHERE",
    "IN_MEMORY",
    "MEMORY",
    "ChunkToLoad",
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
    "OffloadSchedulerLimits",
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
    "SharedConfig",
    "StorePolicy",
    "Way",
    "first_token_s",
    "keys_to_probe",
    "make_offload_scheduler",
    "make_offloading_manager",
    "way_to_load",
]
