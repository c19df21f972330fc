"""`OffloadConfig`: everything that a person can configure of offloading; and the manager that it makes.

    memory: 16GiB
    policy: resume_points
    store: at_boundaries
    blocks_per_chunk: {full_attention: 16}
    disk: {path: /var/cache/octavo, size: 200GiB}

`disk` is short for the first of `tiers`, which says the same in general: `[{type: disk, path: ..., size: ...}]`, and
`shared` for the last one: `{url: s3://bucket/prefix}`.
Without `memory` the arena keeps nothing: it is a staging area of `staging` bytes between the device and the tiers.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

import msgspec
from msgspec import Meta

from octavo.chunks import MOST_BLOCKS_PER_CHUNK, Departures, GroupOffloadConfig
from octavo.errors import InputError
from octavo.host import HostArena, plan_slots
from octavo.offload.load_choice import LoadRule
from octavo.offload.lower_tier import OffloadLimits
from octavo.offload.manager import OffloadingManager
from octavo.offload.retentions import RETAIN_SHARE
from octavo.offload.shared import SharedConfig
from octavo.offload.storer import StorePolicy
from octavo.policies import POLICIES, make_policy
from octavo.settings import Seconds, Settings, Size, unknown_name
from octavo.specs import KVCacheSpec, KVCacheSpecRegistry
from octavo.tiers import OffloadingSpec, opened_tiers, spec_from_config
from octavo.tiers.disk import DiskConfig, DiskSpec

BlocksPerChunk = Annotated[int, Meta(ge=1, le=MOST_BLOCKS_PER_CHUNK)]
Share = Annotated[float, Meta(ge=0, le=1)]
_STAGING_BYTES = 256 << 20
_TIERS = "a list such as [{type: disk, path: /var/cache/octavo, size: 100GiB}]"
_BLOCKS_PER_CHUNK = f"a mapping such as {{full_attention: 16}}, or a whole number from 1 to {MOST_BLOCKS_PER_CHUNK}"
_ANY_KIND = "default"


class FirstDisk(DiskConfig, frozen=True, kw_only=True):
    """The disk below memory, which most people have one of."""

    size_bytes: Size = msgspec.field(name="size", default=100 << 30)
    """The most that the folder may take; everything in it counts."""


class OffloadConfig(Settings, frozen=True, kw_only=True):
    """What a person asked for."""

    what = "offloading"
    readers = {OffloadingSpec: spec_from_config}  # noqa: RUF012 - a ClassVar of the base

    memory: Size | None = None
    """Host memory for what the device cannot hold, bookkeeping included; by default none."""
    staging: Size | None = None
    """Where `memory` is not set: host memory for what is on its way between device and tiers, by default 256 MiB."""
    disk: FirstDisk | None = None
    """A folder that is kept across restarts."""
    shared: SharedConfig | None = None
    """A store that engines share, below all else."""
    tiers: Annotated[tuple[OffloadingSpec, ...], Meta(description=_TIERS)] = ()
    """Media below memory, the nearest first."""
    policy: str = "resume_points"
    """What memory gives up first: resume_points, lru, arc, or one that a package brings."""
    blocks_per_chunk: Annotated[dict[str, BlocksPerChunk] | BlocksPerChunk, Meta(description=_BLOCKS_PER_CHUNK)] = (
        msgspec.field(default_factory=dict)
    )
    """Blocks that are stored together: one number for all groups, or one by kind of group and for `default`; 1 where
    none is given."""
    store: StorePolicy = StorePolicy.AT_BOUNDARIES
    """When what requests compute is stored."""
    loads: LoadRule = LoadRule.MEASURED
    """Which loads are begun; measured: those that are expected to be quicker than computing."""
    retain_share: Share = RETAIN_SHARE
    """The largest part of memory that one tenant may retain, from 0 to 1."""
    load_timeout_s: Seconds = 5.0
    """How long a request waits for its chunks before it computes them."""
    store_timeout_s: Seconds = OffloadLimits().store_timeout_s
    """A store that a tier has not finished by then is given up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        POLICIES.find(self.policy)
        if self.disk is not None:
            msgspec.structs.force_setattr(self, "tiers", (DiskSpec(self.disk), *self.tiers))
            msgspec.structs.force_setattr(self, "disk", None)
        if self.shared is not None:
            msgspec.structs.force_setattr(self, "tiers", (*self.tiers, self.shared.spec))
            msgspec.structs.force_setattr(self, "shared", None)
        if self.memory is not None and self.staging is not None:
            raise InputError("staging is for offloading without memory: leave one of the two out")
        if self.memory is None and not self.tiers:
            raise InputError("there is nowhere to keep chunks: give memory (memory: 8GiB), or tiers")
        if isinstance(self.blocks_per_chunk, dict):
            known = list(dict.fromkeys(spec.kind for spec in KVCacheSpecRegistry.registered_specs()))
            for kind in self.blocks_per_chunk.keys() - {_ANY_KIND, *known}:
                raise InputError(f"blocks_per_chunk: {unknown_name('kind', kind, [_ANY_KIND, *known])}")

    @property
    def memory_bytes(self) -> int:
        """The bytes of the arena."""
        return self.memory or self.staging or _STAGING_BYTES

    @property
    def keeps_in_memory(self) -> bool:
        return self.memory is not None

    @property
    def limits(self) -> OffloadLimits:
        return OffloadLimits(store_timeout_s=self.store_timeout_s)

    def blocks_per_chunk_of(self, spec: KVCacheSpec) -> int:
        """States are stored one by one: most blocks of a sequence never become one."""
        if spec.holds_checkpoints:
            return 1
        if not isinstance(self.blocks_per_chunk, dict):
            return self.blocks_per_chunk
        return self.blocks_per_chunk.get(spec.kind, self.blocks_per_chunk.get(_ANY_KIND, 1))


def make_offloading_manager(
    config: OffloadConfig,
    groups: Sequence[GroupOffloadConfig],
    namespace: bytes,
    *,
    family: bytes = b"",
    identity: Mapping[str, str] = MappingProxyType({}),
    logs_changes: bool = False,
    quotas: Mapping[bytes, int] = MappingProxyType({}),
    departures: Departures | None = None,
) -> OffloadingManager:
    """Allocates the arena and opens the tiers. Nothing stays open if one of them cannot be."""
    with opened_tiers(config.tiers, groups, namespace, family=family, identity=identity) as tiers:
        slots = plan_slots(groups, config.memory_bytes)
        return OffloadingManager(
            HostArena(slots.num_slots, slots.slot_bytes),
            groups,
            make_policy(config.policy, groups, slots.num_slots),
            tiers,
            limits=config.limits,
            keeps_in_memory=config.keeps_in_memory,
            logs_changes=logs_changes,
            quotas=quotas,
            departures=departures,
            retain_share=config.retain_share,
        )
