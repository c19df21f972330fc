"""Media below host memory, each a `Tier`."""

from octavo.tiers.base import CHUNK_EVENTS, OffloadingSpec, Tier, TierContext, TierState, TierStatus
from octavo.tiers.buffers import BufferGuard, gather, gives_checksum, scatter, total_bytes
from octavo.tiers.health import Health
from octavo.tiers.mounts import Mount
from octavo.tiers.opening import opened_tiers
from octavo.tiers.registry import TIERS, spec_from_config

__all__ = [
    "CHUNK_EVENTS",
    "TIERS",
    "BufferGuard",
    "Health",
    "Mount",
    "OffloadingSpec",
    "Tier",
    "TierContext",
    "TierState",
    "TierStatus",
    "gather",
    "gives_checksum",
    "opened_tiers",
    "scatter",
    "spec_from_config",
    "total_bytes",
]
