"""`DiskSpec`: the disk tier as an engine's configuration names it, through the entry points."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.namespace import why_cold
from octavo.tiers.base import OffloadingSpec, Tier, TierContext
from octavo.tiers.disk.cipher import find_cipher
from octavo.tiers.disk.config import DiskConfig
from octavo.tiers.disk.io import DiskIO
from octavo.tiers.disk.tier import DiskTier

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskSpec(OffloadingSpec):
    """Builds a `DiskTier`."""

    name = "disk"

    config: DiskConfig
    io: DiskIO = field(default_factory=DiskIO)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "DiskSpec":
        return cls(DiskConfig.from_mapping(config))

    def build(self, context: TierContext) -> Tier:
        tier = DiskTier(self.config, context, self.io, find_cipher(self.config.key_file, os.environ))
        if context.identity and (reason := why_cold(self.config.path, context.namespace, context.identity)):
            logger.warning("%s: %s", self.config.path, reason)
        return tier
