"""From a manager and registered caches to an `OffloadScheduler`, in one call."""

from time import monotonic

import pytest
import torch

from octavo.blocks import KVCacheManager
from octavo.errors import TransferError
from octavo.offload.building import make_offload_scheduler, offload_groups
from octavo.offload.config import OffloadConfig
from octavo.offload.loader import Readiness
from octavo.planning import plan_kv_cache
from octavo.specs import FullAttentionSpec, RequestLimits, SlidingWindowSpec
from octavo.testing import MODEL_EXAMPLES
from octavo.transfer import CacheRegistration, register_kv_caches, register_sheets

NAMES = {"model_digest": b"weights", "dtype": "float32", "attention_backend": "test"}


def pool_of(plan, device=None):
    return torch.zeros(plan.num_sheets * plan.sheet_bytes, dtype=torch.int8, device=device)


def test_states_are_stored_one_by_one():
    plan = MODEL_EXAMPLES["state + window + full"].plan(1.0)
    config = OffloadConfig.from_mapping({"memory": "1MiB", "blocks_per_chunk": {"default": 4, "sliding_window": 2}})
    groups = offload_groups(plan, register_sheets(pool_of(plan), plan), config)
    by_kind = {group.spec.kind: group.blocks_per_chunk for group in groups}
    assert by_kind.pop("mamba") == 1
    assert by_kind == {"full_attention": 4, "sliding_window": 2}
    assert [group.page_size_bytes for group in groups] == [group.page_bytes for group in plan.groups]


def test_layers_that_are_registered_one_by_one_are_stored_and_found(tmp_path):
    """The plan aligns each layer to 256 bytes, and 64 of them are content. A chunk has as many bytes as the engine
    registered, or the worker would expect another number of slots for it."""
    layers = {f"layer {i}": FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=4) for i in range(20)}
    layers["small"] = SlidingWindowSpec(block_size=4, num_kv_heads=1, head_size=4, sliding_window=8)
    plan = plan_kv_cache(layers, memory_bytes=1 << 20, limits=RequestLimits(max_model_len=64))
    pool = pool_of(plan)
    caches = {
        name: pool.view(-1, plan.class_of(group).page_bytes)[:, start : start + 64]
        for group in plan.groups
        for name, start in group.layer_offsets.items()
    }
    content = {name: torch.randint(127, (64,), dtype=torch.int8) for name in caches}
    tier = {"type": "disk", "path": str(tmp_path), "size": "1MiB", "segment_size": "64KiB"}
    config = OffloadConfig.from_mapping({"memory": "64KiB", "tiers": [tier]})
    manager = KVCacheManager(plan)
    registered = register_kv_caches(caches, CacheRegistration.of_plan(plan))
    offload = make_offload_scheduler(manager, registered, config, **NAMES)

    def blocks_of(request):
        """Each layer's cache of the request's blocks that a resume at 16 tokens needs."""
        for group, table in zip(plan.groups, request.tables, strict=True):
            (needed,) = group.spec.needed_blocks(request.resume_point(16))
            for name in group.layer_names:
                yield name, caches[name], table.rows[needed.start : needed.stop]

    request = manager.begin_request("first", range(17))
    manager.allocate(request, 17)
    for name, cache, rows in blocks_of(request):
        cache[rows] = content[name]
    manager.commit(request, 17)
    offload.finished(request, 0.0)
    manager.free(request)
    assert offload.flush(60.0, monotonic)
    manager.reset_prefix_cache()
    pool.zero_()

    again = manager.begin_request("again", range(17))
    while offload.prepare(again, monotonic()) is Readiness.WAIT:
        offload.wait(0.01)
        offload.poll(monotonic())
    manager.allocate(again, 17, resume=manager.find_resume(again))
    assert again.num_computed_tokens == 16
    assert all((cache[rows] == content[name]).all() for name, cache, rows in blocks_of(again))
    offload.close()


def test_nothing_stays_open_when_a_part_cannot_be_made(tmp_path):
    plan = MODEL_EXAMPLES["full only"].plan(1.0)
    tier = {"type": "disk", "path": str(tmp_path), "size": "1MiB", "segment_size": "64KiB"}
    config = OffloadConfig.from_mapping({"memory": "1MiB", "tiers": [tier]})
    manager = KVCacheManager(plan)
    for _ in range(2):  # the second would find the folder locked
        with pytest.raises(TransferError, match="'meta'"):
            make_offload_scheduler(manager, register_sheets(pool_of(plan, "meta"), plan), config, **NAMES)
    make_offload_scheduler(manager, register_sheets(pool_of(plan), plan), config, **NAMES).close()
