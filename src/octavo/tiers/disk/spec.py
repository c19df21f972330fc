"""`DiskSpec`: the disk tier as an engine's configuration names it, through the entry points."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from octavo.namespace import PARTIAL, keep_description, why_cold
from octavo.tiers.base import OffloadingSpec, Tier, TierContext
from octavo.tiers.disk.cipher import RecordCipher, find_cipher
from octavo.tiers.disk.config import DiskConfig
from octavo.tiers.disk.directory import Owner
from octavo.tiers.disk.io import DiskIO
from octavo.tiers.disk.opening import check_directory
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

    def check(self) -> None:
        find_cipher(self.config.key_file, os.environ)
        check_directory(self.config.path, io=self.io, budget_bytes=self.config.size_bytes, wait_s=self.config.wait_s)

    def build(self, context: TierContext) -> Tier:
        cipher = find_cipher(self.config.key_file, os.environ)
        if not context.identity:
            return DiskTier(self.config, context, self.io, cipher)
        namespace, parts = _description_of(context, cipher)
        describe = partial(keep_description, self.config.path, namespace, parts)
        tier = DiskTier(self.config, context, self.io, cipher, describe)
        if reason := why_cold(self.config.path, namespace, parts):
            tier.cold_start = f"{self.config.path}: {reason}"
            logger.warning("%s", tier.cold_start)
        return tier


def describe_copies(folder: Path, context: TierContext, cipher: RecordCipher | None) -> None:
    """Leaves in a disk tier's directory whose chunks were copied there, unless an engine has said so. The context's
    identity has the parts that a shared store tells, which are not all."""
    namespace, parts = _description_of(context, cipher)
    keep_description(folder, namespace, {**parts, PARTIAL: "true"})


def _description_of(context: TierContext, cipher: RecordCipher | None) -> tuple[bytes, dict[str, str]]:
    """The namespace in the directory, and the parts that describe it."""
    key = f"key {cipher.key_id.hex()}" if cipher else "none"
    return Owner.of(context, cipher).namespace, {"codec": "none", **context.identity, "encryption": key}
