"""Media below host memory, each a `Tier`."""

from octavo.tiers.base import OffloadingSpec, Tier, TierContext, TierState, TierStatus
from octavo.tiers.registry import TIERS, spec_from_config

__all__ = [
    "TIERS",
    "OffloadingSpec",
    "Tier",
    "TierContext",
    "TierState",
    "TierStatus",
    "spec_from_config",
]
