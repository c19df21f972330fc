"""`octavo store warm` from a real S3 server."""

from contextlib import closing

import pytest

from octavo.cli import run
from octavo.testing import tier_driver
from octavo.tiers import TierContext
from octavo.tiers.disk import DiskConfig, DiskIO, DiskTier
from rigs.objects_suite import ObjectsSuite

pytestmark = [pytest.mark.stores, pytest.mark.timeout(300)]


class S3(ObjectsSuite):
    def __init__(self, endpoint):
        self.endpoint = endpoint

    def config(self, folder):
        return {"url": f"s3://octavo/{folder.name}", "endpoint": self.endpoint}


def test_a_disk_is_warmed_from_s3(server, tmp_path, capsys):
    wanted = tier_driver.chunks(range(100))
    with S3(server).driver(tmp_path) as driver:
        assert driver.store(wanted[:60]) == driver.store(wanted[60:]) == frozenset()
    disk = tmp_path / "disk"
    for told in (" there already", " copied"):
        url, size = f"s3://octavo/{tmp_path.name}", "16MiB"
        assert run(["store", "warm", url, "--endpoint", server, "--disk", str(disk), "--size", size]) == 0
        assert f"0 objects, 0 B{told}" in capsys.readouterr().out
    config = DiskConfig(path=disk, size_bytes=16 << 20)
    context = TierContext(namespace=tier_driver.NAMESPACE, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES)
    with closing(DiskTier(config, context, DiskIO())) as tier:
        driver = tier_driver.TierDriver(tier, lambda tier: tier.wait(1.0))
        assert driver.load(wanted) == frozenset()
