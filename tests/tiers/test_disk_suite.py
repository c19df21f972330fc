"""The disk tier under the contract's suite."""

from rigs.disk_suite import DiskTierSuite


class TestDiskTier(DiskTierSuite):
    pass
