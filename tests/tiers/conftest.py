"""A disk tier on a disk that can be made to fail, and a clock that is set by hand."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from octavo.testing import tier_driver
from octavo.tiers.base import TierContext, TierState
from octavo.tiers.disk import DiskTier
from octavo.tiers.disk.cipher import RecordCipher
from octavo.tiers.disk.config import DiskConfig
from rigs.faulty_disk import FaultyDiskIO

NAMESPACE = bytes(range(16))


class DiskBench:
    """One directory, its disk, its clock, and the tiers that were opened on it."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "tier"
        self.io = FaultyDiskIO()
        self.now = 100.0
        self._open: list[DiskTier] = []

    def open(
        self, *, namespace: bytes = NAMESPACE, cipher: RecordCipher | None = None, **config: object
    ) -> tier_driver.TierDriver:
        values = {"path": str(self.directory), "size": 1 << 20, "segment_size": 1 << 16, "read_threads": 2} | config
        context = TierContext(namespace=namespace, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES)
        tier = DiskTier(DiskConfig.from_mapping(values), context, self.io, cipher)
        self._open.append(tier)
        return tier_driver.TierDriver(tier, lambda tier: tier.wait(0.2), lambda: self.now)

    def close(self) -> None:
        for tier in self._open:
            tier.close()

    def recover(self, driver: tier_driver.TierDriver) -> None:
        """Time passes until the next probe has found the disk in order."""

        def is_back() -> bool:
            self.now += 30.0 if driver.tier.wait(0.01) else 120.0
            return driver.tier.status().state is TierState.OK

        driver.poll_until(is_back, "the tier to recover")

    def segments(self) -> list[Path]:
        return sorted(self.directory.glob("segment-*"))

    def check_budget(self, driver: tier_driver.TierDriver, most_bytes: int | None = None) -> None:
        """What the files take is counted, and within the budget. The tier counts first: it may delete meanwhile."""
        used = driver.tier.status().bytes_used
        assert self.sum_of_files() <= used
        assert most_bytes is None or used <= most_bytes

    def sum_of_files(self) -> int:
        total = 0
        for file in self.directory.iterdir():
            with suppress(FileNotFoundError):
                total += file.stat().st_size
        return total


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskBench]:
    bench = DiskBench(tmp_path)
    yield bench
    bench.io.heal()
    bench.close()
