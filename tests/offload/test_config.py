"""Offloading as a person configures it."""

import re

import pytest
from msgspec.structs import fields

from octavo.chunks import LookupResult
from octavo.errors import InputError, NotEnoughMemoryError
from octavo.offload.config import OffloadConfig, make_offloading_manager
from octavo.offload.shared import SharedConfig
from octavo.settings import texts_of
from octavo.stores.mooncake import MooncakeConfig
from octavo.stores.objects import ObjectsConfig
from octavo.stores.redis import RedisConfig
from rigs.offload_world import GROUPS, key_of, wanted

NAMESPACE = bytes(16)
DISK = {"type": "disk", "path": "/nvme/octavo", "size": "1MiB"}


class TestMapping:
    def test_everything(self):
        config = OffloadConfig.from_mapping(
            {
                "memory": "8MiB",
                "policy": "arc",
                "blocks_per_chunk": {"full_attention": 16, "default": 4},
                "tiers": [{"type": "zstd", "tier": DISK}, DISK],
                "load_timeout_s": 2,
                "store_timeout_s": 0.5,
            }
        )
        assert (config.memory_bytes, config.keeps_in_memory) == (8 << 20, True)
        assert [spec.name for spec in config.tiers] == ["zstd", "disk"]
        assert (config.load_timeout_s, config.limits.store_timeout_s) == (2.0, 0.5)

    def test_without_memory_the_arena_is_a_staging_area(self):
        config = OffloadConfig.from_mapping({"tiers": [DISK], "staging": "2MiB"})
        assert (config.memory_bytes, config.keeps_in_memory) == (2 << 20, False)
        assert OffloadConfig.from_mapping({"tiers": [DISK]}).memory_bytes == 256 << 20

    def test_the_url_of_a_shared_store_says_its_kind(self):
        redis, bucket = (
            OffloadConfig.from_mapping({"memory": "1MiB", "shared": {"url": url, "find_seconds": 3}, "tiers": [DISK]})
            for url in ("redis://me:secret@host:6379/0", "s3://bucket")
        )
        assert [spec.name for spec in redis.tiers] == ["disk", "redis"]
        assert [spec.name for spec in bucket.tiers] == ["disk", "objects"]
        assert redis.tiers[1].config.limits.find_s == bucket.tiers[1].config.limits.find_s == 3
        assert redis.tiers[1].config.shown_url == "redis://host:6379/0"
        shared = {"url": "mooncake://host:50051", "segment_size": "1GiB", "protocol": "rdma"}
        (mooncake,) = OffloadConfig.from_mapping({"memory": "1MiB", "shared": shared}).tiers
        assert (mooncake.name, mooncake.config.segment_bytes, mooncake.config.protocol) == ("mooncake", 1 << 30, "rdma")

    def test_a_shared_store_has_the_settings_of_each_kind_and_is_none_of_them(self):
        kinds = [MooncakeConfig, ObjectsConfig, RedisConfig]
        shared = {field.name: (field.encode_name, field.default) for field in fields(SharedConfig)}
        for kind in kinds:
            assert not issubclass(SharedConfig, kind)
            assert {field.name: (field.encode_name, field.default) for field in fields(kind)}.items() <= shared.items()
            texts = texts_of(kind)
            assert {name: texts[name] for name in set(texts) - {"url"}}.items() <= texts_of(SharedConfig).items()

    @pytest.mark.parametrize(
        ("config", "named"),
        [
            ({}, "there is nowhere to keep chunks: give memory"),
            ({"memory": "much"}, "'much' is not a size"),
            ({"memory": 0}, "memory: 0 is not a size"),
            (
                {"memory": "1MiB", "tier": []},
                "unknown setting 'tier'; did you mean 'tiers'? there are: memory, staging",
            ),
            (
                {"memory": "1MiB", "staging": "1MiB"},
                "staging is for offloading without memory: leave one of the two out",
            ),
            ({"memory": "1MiB", "policy": "fifo"}, "offloading: policy 'fifo' is not known; choose one of: arc, lru"),
            ({"memory": "1MiB", "blocks_per_chunk": 64}, "whole number from 1 to 63, not 64"),
            (
                {"memory": "1MiB", "blocks_per_chunk": {"full_attention": "4"}},
                "blocks_per_chunk.full_attention must be a whole number from 1 to 63, not '4'",
            ),
            (
                {"memory": "1MiB", "blocks_per_chunk": {"full_attentoin": 4}},
                "blocks_per_chunk: unknown kind 'full_attentoin'; did you mean 'full_attention'? there are: default, ",
            ),
            ({"memory": "1MiB", "load_timeout_s": 0}, "load_timeout_s must be a number of seconds above 0"),
            ({"memory": "1MiB", "store_timeout_s": float("nan")}, "seconds above 0, at most 1000000000, not nan"),
            (
                {"memory": "1MiB", "shared": {"url": "ftp://a"}},
                "shared.url must be s3://bucket/prefix, gs://, az://, file",
            ),
            (
                {"memory": "1MiB", "shared": {"url": "redis://a", "endpoint": "http://b", "path_style": False}},
                "shared: endpoint and path_style are for object stores: leave them out",
            ),
            (
                {"memory": "1MiB", "shared": {"url": "mooncake://a:1", "region": "b"}},
                "shared: region is for object stores: leave it out",
            ),
            (
                {"memory": "1MiB", "shared": {"url": "s3://bucket", "segment_size": "1GiB"}},
                "shared: segment_size is for Mooncake: leave it out",
            ),
            ({"memory": "1MiB", "shared": {"url": "mooncake://a"}}, "or mooncake://host:port (the name of "),
            (
                {"memory": "1MiB", "shared": {"url": "s3://bucket", "keep_seconds": 60}},
                "shared: keep_seconds is for Redis (a bucket has lifecycle rules): leave it out",
            ),
            ({"memory": "1MiB", "tiers": DISK}, "tiers must be a list"),
            ({"memory": "1MiB", "tiers": ["disk"]}, "a tier is a mapping with a type (disk, "),
            ({"memory": "1MiB", "tiers": [{"type": "tape"}]}, "tier 'tape' is not known; choose one of: disk, "),
        ],
    )
    def test_wrong_settings_are_named(self, config, named):
        with pytest.raises(InputError, match=re.escape(named)):
            OffloadConfig.from_mapping(config)


class TestManager:
    @pytest.mark.parametrize("memory", [{"memory": "1MiB"}, {"staging": "1MiB"}])
    def test_makes_arena_policy_and_tiers(self, memory, tmp_path):
        zstd = {"type": "zstd", "tier": {**DISK, "path": str(tmp_path)}}
        config = OffloadConfig.from_mapping({**memory, "policy": "lru", "tiers": [zstd]})
        manager = make_offloading_manager(config, GROUPS, NAMESPACE)
        status = manager.status()
        assert status.num_slots * status.slot_bytes <= 1 << 20
        assert [medium for medium, _ in status.tiers] == ["disk"]
        prepared = manager.prepare_store([wanted(0)])
        manager.complete_store(prepared.job_id, (), [1])
        assert manager.lookup([key_of(0)]) == [LookupResult.HIT]
        manager.close()

    def test_nothing_stays_open_when_a_part_cannot_be(self, tmp_path):
        config = OffloadConfig.from_mapping({"memory": 1, "tiers": [{**DISK, "path": str(tmp_path)}]})
        for _ in range(2):  # the second would find the folder locked
            with pytest.raises(NotEnoughMemoryError):
                make_offloading_manager(config, GROUPS, NAMESPACE)
