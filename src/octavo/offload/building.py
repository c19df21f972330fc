"""`make_offload_scheduler`: from an engine's manager and registered caches to its slower side, in one call.

    KVCacheManager     -> DeviceCache        what the device has, and pages for loads
    OffloadConfig      -> OffloadingManager  host memory and the tiers below it, under the engine's namespace
    CanonicalKVCaches  -> OffloadingWorker   the copies between device pages and host memory

The embedded engine calls it, and so does an engine of one's own. It is the only place that knows all three.
"""

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import TYPE_CHECKING

from octavo.blocks import DeviceCache, KVCacheManager
from octavo.chunks import GroupOffloadConfig, name_tenant
from octavo.ids import enumerate_groups
from octavo.namespace import CacheIdentity, describe_identity, make_family, make_namespace, may_persist
from octavo.offload.config import OffloadConfig, make_offloading_manager
from octavo.offload.device import OffloadedRequest
from octavo.offload.scheduler import OffloadScheduler, OffloadSchedulerLimits
from octavo.planning import KVCacheConfig

if TYPE_CHECKING:
    from octavo.transfer import CanonicalKVCaches


_logger = logging.getLogger(__name__)


def make_offload_scheduler(
    manager: KVCacheManager,
    caches: "CanonicalKVCaches",
    config: OffloadConfig,
    *,
    model_digest: bytes,
    dtype: str,
    attention_backend: str,
    computed_on: str = "",
    logs_changes: bool = False,
    quotas: Mapping[str, int] = MappingProxyType({}),
    model_name: str = "",
) -> OffloadScheduler:
    """Opens host memory and all tiers, and starts the worker. `close` of the scheduler ends all of it; if a part cannot
    be opened, nothing stays open.

    `model_digest` names the weights by content (`octavo.namespace.digest_weights`). `dtype` and `attention_backend`
    name how an engine reads a page's bytes: engines that read them differently must give different names, or one
    would resume from bytes that the other wrote. `computed_on` names what rounds in its own way, as another device
    does: resumed from its bytes, an answer might differ from that of an engine alone. With `logs_changes`,
    `take_events` tells what tiers hold. `quotas`: by salt, the most bytes that are kept of what is computed under it.
    `model_name` is for people who look into a folder.
    """
    from octavo.transfer import make_worker  # it imports torch, which only an engine needs

    plan = manager.config
    groups = offload_groups(plan, caches, config)
    identity = CacheIdentity(
        model_digest=model_digest,
        dtype=dtype,
        config=plan,
        blocks_per_chunk=tuple(group.blocks_per_chunk for group in groups),
        hash_algorithm=manager.hasher.algorithm,
        hash_seed=manager.hasher.seed,
        attention_backend=attention_backend,
        computed_on=computed_on,
    )
    namespace = make_namespace(identity)
    _logger.info("chunks are kept under namespace %s", namespace.hex())
    with ExitStack() as undo:
        offloading = make_offloading_manager(
            config,
            groups,
            namespace,
            family=make_family([model_digest]),
            identity=describe_identity(identity, model=model_name),
            logs_changes=logs_changes,
            quotas={name_tenant(salt): num_bytes for salt, num_bytes in quotas.items()},
            departures=manager.pool.departures,
        )
        undo.callback(offloading.close)
        worker = make_worker(caches, offloading.arena.view, take_checksums=True)
        undo.pop_all()
    return OffloadScheduler(
        DeviceCache(manager),
        offloading,
        worker,
        groups,
        may_persist=_may_persist,
        limits=OffloadSchedulerLimits(patience_s=config.load_timeout_s, loads=config.loads, store_policy=config.store),
    )


def offload_groups(
    plan: KVCacheConfig, caches: "CanonicalKVCaches", config: OffloadConfig
) -> tuple[GroupOffloadConfig, ...]:
    """A plan's groups, as they are offloaded. A block has the bytes that the engine registered for it, which may be
    fewer than the plan's page: an engine that registers layer by layer leaves out what aligns the layers."""
    return tuple(
        GroupOffloadConfig(
            spec=group.spec.rule,
            blocks_per_chunk=config.blocks_per_chunk_of(group.spec.rule),
            page_size_bytes=caches.page_size_bytes(group_idx),
        )
        for group_idx, group in enumerate_groups(plan.groups)
    )


def _may_persist(request: OffloadedRequest) -> bool:
    return may_persist(request.identity)
