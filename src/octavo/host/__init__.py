"""What lies in host memory: the arena, its slots, the chunks in them, a segment that processes share, and what
killed processes left."""

from octavo.host.arena import PAGE_BYTES, HostArena, SlotPlan, plan_slots
from octavo.host.free_memory import free_memory_bytes, tell_of_lack
from octavo.host.leftovers import YOUNGEST_S, find_old, is_unlocked, temporary_folder
from octavo.host.resident import MEMORY, ResidentChunks
from octavo.host.segment import Segment, attach, segment_path
from octavo.host.slots import NO_CHECKSUM, NO_CHUNK

__all__ = [
    "MEMORY",
    "NO_CHECKSUM",
    "NO_CHUNK",
    "PAGE_BYTES",
    "YOUNGEST_S",
    "HostArena",
    "ResidentChunks",
    "Segment",
    "SlotPlan",
    "attach",
    "find_old",
    "free_memory_bytes",
    "is_unlocked",
    "plan_slots",
    "segment_path",
    "tell_of_lack",
    "temporary_folder",
]
