"""Media below host memory, each a `Tier`."""

from octavo.tiers.base import OffloadingSpec, Tier, TierContext, TierState, TierStatus
from octavo.tiers.opening import opened_tiers
from octavo.tiers.registry import TIERS, spec_from_config

__all__ = [
    "TIERS",
    "OffloadingSpec",
    "Tier",
    "TierContext",
    "TierState",
    "TierStatus",
    "opened_tiers",
    "spec_from_config",
]
