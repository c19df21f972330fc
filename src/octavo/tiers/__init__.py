"""Media below host memory, each a `Tier`."""

from octavo.tiers import registry
from octavo.tiers.base import OffloadingSpec, Tier, TierContext, TierState, TierStatus
from octavo.tiers.registry import spec_from_config

__all__ = [
    "OffloadingSpec",
    "Tier",
    "TierContext",
    "TierState",
    "TierStatus",
    "registry",
    "spec_from_config",
]
