"""From an `OffloadConfig` to the slower side of one engine: arena, tiers, worker, scheduler."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from octavo.blocks import DeviceCache, KVCacheManager
from octavo.engine.config import EngineConfig
from octavo.engine.runner import ModelRunner
from octavo.namespace import CacheIdentity, digest_weights, make_namespace, may_persist
from octavo.offload import (
    OffloadConfig,
    OffloadedRequest,
    OffloadScheduler,
    SchedulerLimits,
    make_offloading_manager,
    offload_groups,
)
from octavo.transfer import make_worker, register_sheets

MakeOffload = Callable[[KVCacheManager, ModelRunner], OffloadScheduler]


def offload_maker(engine: EngineConfig, offload: OffloadConfig, *, digests: Path | None = None) -> MakeOffload:
    """What `Engine.from_config` wants as `make_offload`. In the folder `digests` it may remember digests of weights, so
    that a restart need not read them."""

    def make(manager: KVCacheManager, runner: ModelRunner) -> OffloadScheduler:
        plan = manager.config
        groups = offload_groups(plan, offload)
        identity = CacheIdentity(
            model_digest=digest_weights(engine.model, digests),
            dtype=engine.dtype,
            config=plan,
            blocks_per_chunk=tuple(group.blocks_per_chunk for group in groups),
            hash_algorithm=manager.hasher.algorithm,
            hash_seed=repr(engine.hash_seed),
            attention_backend=f"octavo.engine 1, transformers {version('transformers')}",
        )
        offloading_manager = make_offloading_manager(
            offload, groups, make_namespace(identity), logs_changes=engine.kv_events is not None
        )
        worker = make_worker(
            register_sheets(runner.pages.pool, plan), offloading_manager.arena.view, take_checksums=True
        )
        return OffloadScheduler(
            DeviceCache(manager),
            offloading_manager,
            worker,
            groups,
            may_persist=_may_persist,
            limits=SchedulerLimits(patience_s=offload.load_timeout_s, store_policy=offload.store),
        )

    return make


def _may_persist(request: OffloadedRequest) -> bool:
    return may_persist(request.identity)
