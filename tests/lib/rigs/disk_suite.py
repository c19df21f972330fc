"""The contract's suite for a disk tier, with segments so small that most jobs fill one."""

from contextlib import suppress
from pathlib import Path

from octavo.testing import TierSuite, tier_driver
from octavo.tiers import Tier, TierContext
from octavo.tiers.disk import DiskSpec, DiskTier


def sum_of_files(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # the tier deletes meanwhile
            total += file.stat().st_size if file.is_file() else 0
    return total


class DiskTierSuite(TierSuite):
    is_durable = True

    def open_tier(self, folder: Path, namespace: bytes) -> Tier:
        spec = DiskSpec.from_config(
            {"path": str(folder / "tier"), "size": self.budget_bytes, "segment_size": 40_960, "read_threads": 2}
        )
        return spec.build(TierContext(namespace=namespace, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES))

    def bytes_on_medium(self, folder: Path) -> int:
        return sum_of_files(folder)

    def check_invariants(self, tier: Tier) -> None:
        assert isinstance(tier, DiskTier)
        tier.check_invariants()

    def await_progress(self, tier: Tier) -> None:
        assert isinstance(tier, DiskTier)
        tier.wait(1.0)
