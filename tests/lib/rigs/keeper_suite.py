"""`KeeperSuite`: the contract of `StoreKeeper`, over what a real tier has stored."""

import time
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import contextmanager

import pytest

from octavo.chunks import ChunkBytes, name_tenant
from octavo.namespace import NAMESPACE_PART
from octavo.offload import SharedConfig
from octavo.stores import Finding, Inventory, delete_items, expire, find_all
from octavo.testing import tier_driver
from octavo.tiers import TierContext
from rigs.objects_suite import PATIENT

FAMILY = bytes(range(2, 18))
KEYS = range(6)
IDENTITY = {"model": "org/kiel"}


class KeeperSuite(ABC):
    """A test subclasses it."""

    holds_chunks = 1
    """Chunks in an item."""
    versions = (8,)
    """Where the versions of formats lie in an item: that of a chunk's envelope, and others."""

    @abstractmethod
    def settings(self, folder):
        """Where the store is."""

    @abstractmethod
    def spoil(self, folder, name, index):
        """Changes one byte of what is stored under a name."""

    @abstractmethod
    def put(self, folder, name):
        """Stores some bytes that are not an engine's."""

    @pytest.fixture(params=[None, "5a" * 32], ids=["plain", "encrypted"])
    def spec(self, request, tmp_path):
        return self.make_spec(tmp_path, request.param)

    def make_spec(self, folder, key=None):
        settings = {**PATIENT, **self.settings(folder)}
        if key is not None:
            settings["key_file"] = str(folder.parent / f"{folder.name}-{key[:4]}")
            (folder.parent / f"{folder.name}-{key[:4]}").write_text(key)
        return SharedConfig.from_mapping(settings).spec

    @contextmanager
    def driver(self, spec, namespace=tier_driver.NAMESPACE):
        context = TierContext(
            namespace=namespace, family=FAMILY, max_chunk_bytes=tier_driver.MAX_CHUNK_BYTES, identity=IDENTITY
        )
        tier = spec.build(context)
        try:
            yield tier_driver.TierDriver(tier, lambda tier: tier.flush(0.001))
        finally:
            tier.close()

    def fill(self, spec, *, namespace=tier_driver.NAMESPACE):
        with self.driver(spec, namespace) as driver:
            assert driver.store(tier_driver.chunks(KEYS)) == frozenset()

    @contextmanager
    def keeper(self, spec):
        keeper = spec.open_keeper()
        with keeper.asking():
            yield keeper

    def count(self, keeper):
        inventory = Inventory()
        return inventory, list(inventory.counting(keeper.entries()))

    def findings(self, spec, cipher):
        with self.keeper(spec) as keeper:
            found = find_all(keeper, filter(None, keeper.entries()), cipher)
            return Counter(finding for _, findings in found for finding in findings)

    def test_all_is_counted_and_what_is_not_an_engines_is_left_alone(self, spec, tmp_path):
        self.put(tmp_path, "notes")
        self.fill(spec)
        self.fill(spec, namespace=tier_driver.OTHER_NAMESPACE)
        with self.keeper(spec) as keeper:
            inventory, items = self.count(keeper)
            assert inventory.total.count * self.holds_chunks == 2 * len(KEYS)
            assert inventory.total.num_bytes > 2 * len(KEYS) * tier_driver.MAX_CHUNK_BYTES
            assert {share.count for share in inventory.namespaces.values()} == {len(items) // 2}
            assert (list(inventory.tenants), inventory.former.count, inventory.others) == (["shared"], 0, 1)
            assert {item.family for item in items} == {FAMILY.hex()}
            gone = delete_items(keeper, items, is_dry=False, tell=lambda share: None)
            assert gone == inventory.total
            inventory, items = self.count(keeper)
            assert (items, inventory.others) == ([], 1)

    def test_what_a_tenant_has_is_told_by_its_salt(self, tmp_path):
        spec = self.make_spec(tmp_path)
        tenant = name_tenant("alice")
        chunk = tier_driver.Chunk(tier_driver.key(0))
        bytes_of_it = ChunkBytes(chunk.key, [memoryview(bytearray(chunk.content))], chunk.held_blocks, tenant=tenant)
        with self.driver(spec) as driver:
            driver.tier.ask(tier_driver.ALL_KEYS._replace(tenant=tenant), wants_answer=False)
            assert driver.tier.submit_store(1, [bytes_of_it])
            assert driver.tier.flush(60)
        with self.keeper(spec) as keeper:
            inventory, _ = self.count(keeper)
            assert list(inventory.tenants) == [tenant.hex()]

    def test_a_reset_leaves_behind_what_is_collected_beside_an_engine(self, spec):
        self.fill(spec)
        with self.driver(spec) as driver:
            driver.tier.reset()
            driver.poll_until(driver.tier.is_reset_durable, "the reset")
            assert driver.store(tier_driver.chunks([0])) == frozenset()
            with self.keeper(spec) as keeper:
                inventory, items = self.count(keeper)
                assert (inventory.total.count, inventory.former.count) == (len(items), len(items) - 1)
                takes = expire(inventory, most_bytes=None, before_s=0, now_s=int(time.time())).takes
                gone = delete_items(keeper, filter(takes, items), is_dry=False, tell=lambda share: None)
                assert gone == inventory.former
                inventory, _ = self.count(keeper)
                assert (inventory.total.count, inventory.former.count) == (1, 0)
            assert driver.load(tier_driver.chunks([0])) == frozenset()

    def test_an_engine_misses_what_was_deleted_and_stores_it_again(self, spec):
        self.fill(spec)
        with self.driver(spec) as driver:
            assert all(driver.found(KEYS))
            with self.keeper(spec) as keeper:
                delete_items(keeper, self.count(keeper)[1], is_dry=False, tell=lambda share: None)
            assert driver.load(tier_driver.chunks(KEYS)) == set(KEYS)
            assert driver.store(tier_driver.chunks(KEYS)) == frozenset()
            assert driver.load(tier_driver.chunks(KEYS)) == frozenset()

    def test_what_is_whole_is_told_from_what_is_authentic(self, tmp_path):
        plain, ours, theirs = (self.make_spec(tmp_path, key) for key in (None, "5a" * 32, "a5" * 32))
        for spec in (plain, ours):
            self.fill(spec)
        both = 2 * len(KEYS)
        assert self.findings(plain, None) == {Finding.WHOLE: both}
        assert self.findings(plain, theirs.find_cipher()) == {Finding.WHOLE: both}
        expected = {Finding.WHOLE: len(KEYS), Finding.AUTHENTIC: len(KEYS)}
        assert self.findings(plain, ours.find_cipher()) == expected

    def test_what_an_engine_said_of_its_namespace_is_told_and_dropped(self, spec):
        for _ in range(2):
            self.fill(spec)
            self.fill(spec, namespace=tier_driver.OTHER_NAMESPACE)
            with self.keeper(spec) as keeper:
                inventory, items = self.count(keeper)
                assert inventory.others == 0
                kept, dropped = sorted({item.namespace for item in items})

                def told(keeper=keeper, names=(kept, dropped, "00" * 16)):
                    """Encrypted ones tell their own namespace too."""
                    parts = [keeper.describe(FAMILY.hex(), name) for name in names]
                    return [{part: text for part, text in own.items() if part != NAMESPACE_PART} for own in parts]

                assert told() == [IDENTITY, IDENTITY, {}]
                keeper.drop_descriptions([])  # as if both had been stored since all was listed
                assert told() == [IDENTITY, IDENTITY, {}]
                keeper.delete([item for item in items if item.namespace == dropped])
                keeper.drop_descriptions([kept])
                assert told() == [IDENTITY, {}, {}]
                assert {item.namespace for item in self.count(keeper)[1]} == {kept}
                keeper.delete(self.count(keeper)[1])
                keeper.drop_descriptions([])
                assert told() == [{}, {}, {}]

    def test_what_a_later_version_wrote_is_not_called_damaged(self, spec, tmp_path):
        self.fill(spec)
        with self.keeper(spec) as keeper:
            (first, *_) = self.count(keeper)[1]
        for index in self.versions:
            self.spoil(tmp_path, first.name, index)
            found = self.findings(spec, spec.find_cipher())
            assert found[Finding.LATER] == 1
            assert not any(finding.is_bad for finding in found)
            self.spoil(tmp_path, first.name, index)

    def test_damage_is_found(self, spec, tmp_path):
        self.fill(spec)
        with self.keeper(spec) as keeper:
            (first, *_) = self.count(keeper)[1]
        for index in (30, 100, 300):
            self.spoil(tmp_path, first.name, index)
            assert self.findings(spec, spec.find_cipher())[Finding.DAMAGED] == 1
            self.spoil(tmp_path, first.name, index)
        assert set(self.findings(spec, None)) == {Finding.WHOLE}
