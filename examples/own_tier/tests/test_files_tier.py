"""The conformance suite of `octavo.testing`, and what is special about files."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from octavo_files import FilesSpec, FilesTier

from octavo.errors import InputError
from octavo.offload import OffloadConfig
from octavo.testing import NAMESPACE, TierSuite, tier_driver
from octavo.tiers import Tier, TierContext, TierState


class TestFilesTier(TierSuite):
    """The contract of every tier."""

    is_durable = True

    def open_tier(self, folder: Path, namespace: bytes) -> FilesTier:
        spec = FilesSpec(path=folder, size_bytes=self.budget_bytes)
        return spec.build(TierContext(namespace=namespace, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES))

    def bytes_on_medium(self, folder: Path) -> int:
        num_bytes = 0
        for file in (folder / NAMESPACE.hex()).iterdir():
            with suppress(FileNotFoundError):  # the tier's thread may delete it meanwhile
                num_bytes += file.stat().st_size
        return num_bytes

    def await_progress(self, tier: Tier) -> None:
        tier.flush(1.0)

    def test_a_damaged_file_is_a_miss(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            driver.store(tier_driver.chunks([1, 2]))
            file = next((tmp_path / NAMESPACE.hex()).iterdir())
            file.write_bytes(file.read_bytes()[:-1] + b"?")
            assert len(driver.load(tier_driver.chunks([1, 2]))) == 1
            assert sorted(mask != 0 for mask in driver.found([1, 2])) == [False, True]

    def test_a_folder_that_fails_turns_the_tier_off(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            driver.store(tier_driver.chunks([1]))
            shutil.rmtree(tmp_path / NAMESPACE.hex())
            assert driver.store(tier_driver.chunks([2])) == {0}
            assert driver.found([1, 2]) == [0, 0]
            assert driver.submit_store(tier_driver.chunks([3])) is None
            assert driver.tier.status().state is TierState.DEGRADED

    def test_a_folder_has_one_process(self, tmp_path: Path) -> None:
        with self.driver(tmp_path), pytest.raises(InputError, match="in use by another process"):
            self.open_tier(tmp_path, NAMESPACE)

    def test_a_smaller_budget_holds_from_the_start(self, tmp_path: Path) -> None:
        with self.driver(tmp_path) as driver:
            driver.store(tier_driver.chunks(range(8)))
        context = TierContext(namespace=NAMESPACE, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES)
        driver = tier_driver.TierDriver(FilesSpec(path=tmp_path, size_bytes=20_000).build(context), self.await_progress)
        driver.announce()
        driver.settle()
        assert [mask != 0 for mask in driver.found(range(8))] == [False] * 6 + [True] * 2
        assert self.bytes_on_medium(tmp_path) < 20_000
        driver.tier.close()


def test_a_configuration_names_it(tmp_path: Path) -> None:
    tier = {"type": "files", "path": str(tmp_path), "size": "1MiB"}
    config = OffloadConfig.from_mapping({"memory": "1MiB", "tiers": [tier]})
    assert config.tiers == (FilesSpec(path=tmp_path, size_bytes=1 << 20),)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"path": "/x"}, "needs path and size, and nothing else, not path"),
        ({"path": "/x", "size": "1MiB", "colour": "red"}, "not path, size, colour"),
        ({"path": "/x", "size": "many"}, "'many' is not a size"),
    ],
)
def test_a_wrong_configuration_is_refused(config: dict[str, str], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        FilesSpec.from_config(config)


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    context = TierContext(namespace=NAMESPACE, max_chunk_bytes=100)
    with pytest.raises(InputError, match="give another path"):
        FilesSpec(path=tmp_path / "file", size_bytes=1 << 20).build(context)
    with pytest.raises(InputError, match="cannot hold one chunk: give it 4096"):
        FilesSpec(path=tmp_path, size_bytes=10).build(context)
