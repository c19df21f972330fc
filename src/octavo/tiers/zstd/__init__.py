"""zstd over another tier: its chunks, lossless, in fewer bytes."""

from octavo.tiers.zstd.codec import ZstdPlanes
from octavo.tiers.zstd.spec import ZstdSpec
from octavo.tiers.zstd.tier import ZstdTier

__all__ = ["ZstdPlanes", "ZstdSpec", "ZstdTier"]
